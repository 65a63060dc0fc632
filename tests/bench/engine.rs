//! The engine asked directly, and the engine as a Swarm of one: what kubeleet is compared with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::Docker as Client;
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, RestartPolicy, RestartPolicyNameEnum, ServiceSpec,
    ServiceSpecMode, ServiceSpecModeReplicated, SwarmInitRequest, TaskSpec, TaskSpecContainerSpec,
    TaskSpecRestartPolicy, TaskSpecRestartPolicyConditionEnum,
};
use bollard::query_parameters::{
    LeaveSwarmOptions, ListContainersOptions, RemoveContainerOptions, StartContainerOptions,
    StopContainerOptions,
};
use futures_util::{StreamExt, stream};
use kubeleet_tests::docker::IMAGE;

/// How often the engine is asked how many there are: seldom enough not to slow it down.
const POLL: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(300);

/// A client of the engine, for containers with one label.
#[derive(Clone)]
pub struct Engine {
    client: Client,
}

impl Engine {
    pub async fn connect() -> Self {
        let client = Client::connect_with_defaults().unwrap().negotiate_version().await.unwrap();
        Self { client }
    }

    /// What kind of engine it is, in a word or two.
    pub async fn describe(&self) -> String {
        let info = self.client.info().await.unwrap();
        let (version, driver) = (info.server_version.unwrap_or_default(), info.driver.unwrap_or_default());
        format!("Docker Engine {version}, {driver}")
    }

    /// Waits until just so many containers with this label are there.
    pub async fn until(&self, label: &str, running_only: bool, wanted: usize) {
        let begun = Instant::now();
        loop {
            let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
            let options =
                ListContainersOptions { all: !running_only, filters: Some(filters), ..Default::default() };
            let found = self.client.list_containers(Some(options)).await.unwrap().len();
            if found == wanted {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{found} containers with {label}, not {wanted}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Creates and starts containers just like kubeleet's, so many calls at a time; gives their ids.
    pub async fn launch(&self, node: &str, count: usize, at_a_time: usize) -> Vec<String> {
        let body = Arc::new(body(node));
        let one = |_| {
            let (client, body) = (self.client.clone(), body.clone());
            async move {
                let id = client.create_container(None, (*body).clone()).await.unwrap().id;
                client.start_container(&id, None::<StartContainerOptions>).await.unwrap();
                id
            }
        };
        stream::iter(0..count).map(one).buffer_unordered(at_a_time).collect().await
    }

    /// Stops and removes them, so many at a time.
    pub async fn remove(&self, ids: Vec<String>, at_a_time: usize) {
        let one = |id: String| async move {
            let stop = StopContainerOptions { t: Some(10), ..Default::default() };
            self.client.stop_container(&id, Some(stop)).await.unwrap();
            let remove = RemoveContainerOptions { v: true, ..Default::default() };
            self.client.remove_container(&id, Some(remove)).await.unwrap();
        };
        stream::iter(ids).for_each_concurrent(at_a_time, one).await;
    }

    /// Makes the engine a Swarm of its own; none when it is in one, or can not be.
    pub async fn swarm(&self) -> Result<Swarm, String> {
        let request = SwarmInitRequest {
            listen_addr: Some("127.0.0.1:2377".to_owned()),
            advertise_addr: Some("127.0.0.1".to_owned()),
            ..Default::default()
        };
        self.client.init_swarm(request).await.map_err(|error| error.to_string())?;
        Ok(Swarm { engine: self.clone() })
    }
}

/// What the worker asks for, see its `create_body`.
fn body(node: &str) -> ContainerCreateBody {
    let labels = [("orchestrator", "kubeleet"), ("kubeleet.node", node)];
    let limits = [("max-size", "10m"), ("max-file", "3")];
    let map = |pairs: [(&str, &str); 2]| pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    ContainerCreateBody {
        image: Some(IMAGE.to_owned()),
        labels: Some(map(labels)),
        host_config: Some(HostConfig {
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                maximum_retry_count: None,
            }),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(map(limits)),
            }),
            pids_limit: Some(4096),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Dropped, the engine leaves it.
pub struct Swarm {
    engine: Engine,
}

impl Swarm {
    pub async fn create(&self, name: &str, replicas: usize) {
        let spec = ServiceSpec {
            name: Some(name.to_owned()),
            task_template: Some(TaskSpec {
                container_spec: Some(TaskSpecContainerSpec {
                    image: Some(IMAGE.to_owned()),
                    ..Default::default()
                }),
                restart_policy: Some(TaskSpecRestartPolicy {
                    condition: Some(TaskSpecRestartPolicyConditionEnum::NONE),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            mode: Some(ServiceSpecMode {
                replicated: Some(ServiceSpecModeReplicated { replicas: Some(replicas as i64) }),
                ..Default::default()
            }),
            ..Default::default()
        };
        self.engine.client.create_service(spec, None).await.unwrap();
        self.engine.until(&label(name), true, replicas).await;
    }

    pub async fn delete(&self, name: &str) {
        self.engine.client.delete_service(name).await.unwrap();
        self.engine.until(&label(name), false, 0).await;
    }
}

fn label(service: &str) -> String {
    format!("com.docker.swarm.service.name={service}")
}

impl Drop for Swarm {
    fn drop(&mut self) {
        // A runtime of its own: ours may be the very thread that drops this.
        let leave = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let engine = Engine::connect().await;
                let _left = engine.client.leave_swarm(Some(LeaveSwarmOptions { force: true })).await;
            });
        };
        let _joined = std::thread::spawn(leave).join();
    }
}
