//! Hosts with a container engine and a worker each; the rest runs on the machine itself, which is never cut
//! off.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kubeleet_tests::Http;
use kubeleet_tests::cluster::binary;
use kubeleet_tests::hosts::TestHosts;
use reqwest::Method;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::observe;
use crate::rig::{Persistence, Rig};

pub const KUBELEET_LABEL: &str = "orchestrator=kubeleet";

/// Long enough not to slow an engine down.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const CONTAINER_LIMIT: Duration = Duration::from_secs(300);

/// In the same order.
pub struct Fleet {
    pub hosts: TestHosts,
    pub engines: Vec<Engine>,
}

impl Fleet {
    pub async fn start(count: u8) -> Option<Self> {
        let hosts = TestHosts::start(count).await?;
        let mut engines = Vec::new();
        for host in hosts.all() {
            let socket = host.docker_host();
            engines.push(Engine::connect(&socket).await);
        }
        Some(Self { hosts, engines })
    }

    pub async fn wait_for_containers(engines: &[Engine], label: &str, running_only: bool, wanted: usize) {
        let begin = Instant::now();
        loop {
            let counts = join_all(engines.iter().map(|engine| engine.count(label, running_only))).await;
            let found: usize = counts.iter().sum();
            if found == wanted {
                return;
            }
            assert!(
                begin.elapsed() < CONTAINER_LIMIT,
                "{found} containers with {label}, not {wanted}: {counts:?}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn cluster(&self) -> FleetCluster {
        self.cluster_with(&[]).await
    }

    pub async fn cluster_with(&self, settings: &[(&'static str, &str)]) -> FleetCluster {
        let machine = self.hosts.machine();
        let arguments = ["--bind", "127.0.0.1", machine, "--protected-mode", "no"];
        let mut rig = Rig::with_redis(Persistence::Everysec.redis_with(&arguments).await, settings).await;
        let url = format!("redis://{machine}:{}", rig.redis.port());
        for host in self.hosts.all() {
            let socket = host.docker_host();
            let settings = [
                ("KUBELEET_NODE", host.name()),
                ("KUBELEET_RUNTIME", "docker"),
                ("DOCKER_HOST", socket.as_str()),
                ("KUBELEET_REDIS_URL", url.as_str()),
            ];
            let program = host.command(binary().to_str().unwrap());
            rig.start_command(program, "worker", host.name(), &settings);
            rig.nodes.push(host.name().to_owned());
        }
        rig.scheduler();
        let http = rig.api().await;
        http.nodes_ready(self.engines.len()).await;
        rig.wait_until_idle(Duration::from_secs(20)).await;
        FleetCluster { rig, http }
    }
}

pub struct FleetCluster {
    pub rig: Rig,
    http: Http,
}

impl FleetCluster {
    pub async fn launch(&self, service: &Value) -> Duration {
        let mut connection = self.rig.connection().await;
        let begin = Instant::now();
        let (status, answer) = self.http.send(Method::POST, "/service", Some(service)).await;
        assert_eq!(status.as_u16(), 201, "{answer}");
        let running = async || observe::running(&mut connection, &self.rig.nodes).await;
        observe::until("running", service["replicas"].as_u64().unwrap(), begin, running).await
    }

    pub async fn remove(&self, fleet: &Fleet, name: &str) -> Duration {
        let begin = Instant::now();
        let (status, answer) = self.http.send(Method::DELETE, &format!("/service/{name}"), None).await;
        assert!(status.is_success(), "{answer}");
        Fleet::wait_for_containers(&fleet.engines, KUBELEET_LABEL, false, 0).await;
        begin.elapsed()
    }
}

pub fn service(name: &str, replicas: usize) -> Value {
    json!({ "name": name, "image": kubeleet_tests::docker::IMAGE, "replicas": replicas })
}
