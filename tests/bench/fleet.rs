//! Hosts with an engine each, and clusters on them. Redis, API and scheduler are on the machine itself, which hangs on the
//! same switch and is never cut off; on each host there is a worker.
//!
//! The machine's own engine is left alone: it never becomes a Swarm, and what is started on a host is gone with it,
//! whatever becomes of the bench.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kubeleet_tests::Http;
use kubeleet_tests::cluster::binary;
use kubeleet_tests::hosts::Hosts;
use reqwest::Method;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::observe;
use crate::rig::{Persistence, Rig};

/// What all containers of kubeleet have.
pub const OURS: &str = "orchestrator=kubeleet";

/// How often engines are asked how many containers there are: seldom enough not to slow them down.
const POLL: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(300);

/// Hosts and their engines, in the same order. Dropped, all that runs there is gone.
pub struct Fleet {
    pub hosts: Hosts,
    pub engines: Vec<Engine>,
}

impl Fleet {
    /// None where there can be no hosts, which is said.
    pub async fn start(count: u8) -> Option<Self> {
        let hosts = Hosts::start(count).await?;
        let mut engines = Vec::new();
        for host in hosts.all() {
            let socket = host.docker_host();
            engines.push(Engine::at(&socket).await);
        }
        Some(Self { hosts, engines })
    }

    /// Waits until just so many containers with this label are on these engines together.
    pub async fn until(engines: &[Engine], label: &str, running_only: bool, wanted: usize) {
        let begun = Instant::now();
        loop {
            let counts = join_all(engines.iter().map(|engine| engine.count(label, running_only))).await;
            let found: usize = counts.iter().sum();
            if found == wanted {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{found} containers with {label}, not {wanted}: {counts:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// A cluster of these hosts, ready and at rest, with default settings.
    pub async fn cluster(&self) -> Cluster {
        self.cluster_with(&[]).await
    }

    /// The same with these settings for its daemons.
    pub async fn cluster_with(&self, settings: &[(&'static str, &str)]) -> Cluster {
        let machine = self.hosts.machine();
        let reachable = ["--bind", "127.0.0.1", machine, "--protected-mode", "no"];
        let mut rig = Rig::over(Persistence::Everysec.redis_with(&reachable).await, settings).await;
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
            rig.start_by(program, "worker", host.name(), &settings);
            rig.nodes.push(host.name().to_owned());
        }
        rig.scheduler();
        let http = rig.api().await;
        http.nodes_ready(self.engines.len()).await;
        rig.until_idle(Duration::from_secs(20)).await;
        Cluster { rig, http }
    }
}

/// Daemons on the machine and on its hosts.
pub struct Cluster {
    pub rig: Rig,
    http: Http,
}

impl Cluster {
    /// Posts this service and waits until its pods run; how long that took.
    pub async fn launch(&self, service: &Value) -> Duration {
        let mut connection = self.rig.connection().await;
        let begun = Instant::now();
        let (status, answer) = self.http.send(Method::POST, "/service", Some(service)).await;
        assert_eq!(status.as_u16(), 201, "{answer}");
        let running = async || observe::running(&mut connection, &self.rig.nodes).await;
        observe::until("running", service["replicas"].as_u64().unwrap(), begun, running).await
    }

    /// Deletes the service and waits until nothing of it is left; how long that took.
    pub async fn remove(&self, fleet: &Fleet, name: &str) -> Duration {
        let begun = Instant::now();
        let (status, answer) = self.http.send(Method::DELETE, &format!("/service/{name}"), None).await;
        assert!(status.is_success(), "{answer}");
        Fleet::until(&fleet.engines, OURS, false, 0).await;
        begun.elapsed()
    }
}

/// A service of the test image.
pub fn service(name: &str, replicas: usize) -> Value {
    json!({ "name": name, "image": kubeleet_tests::docker::IMAGE, "replicas": replicas })
}
