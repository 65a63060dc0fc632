//! Direct calls of a container engine, for comparison with kubeleet.

use std::collections::HashMap;
use std::sync::Arc;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    ListContainersOptions, RemoveContainerOptions, StartContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker as Client};
use futures_util::{StreamExt, stream};
use kubeleet_tests::docker::IMAGE;

/// Longer than a call of an engine under load.
const CALL_TIMEOUT_SECONDS: u64 = 300;

pub struct Engine {
    pub client: Client,
}

impl Engine {
    pub async fn connect(host: &str) -> Self {
        let client = Client::connect_with_unix(host, CALL_TIMEOUT_SECONDS, API_DEFAULT_VERSION).unwrap();
        Self { client: client.negotiate_version().await.unwrap() }
    }

    pub async fn describe(&self) -> String {
        let info = self.client.info().await.unwrap();
        let (version, driver) = (info.server_version.unwrap_or_default(), info.driver.unwrap_or_default());
        format!("Docker Engine {version}, {driver}")
    }

    pub async fn count(&self, label: &str, running_only: bool) -> usize {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let options =
            ListContainersOptions { all: !running_only, filters: Some(filters), ..Default::default() };
        self.client.list_containers(Some(options)).await.unwrap().len()
    }

    /// Containers like kubeleet's. Returns their ids.
    pub async fn launch(&self, count: usize, concurrency: usize) -> Vec<String> {
        let body = Arc::new(body());
        let one = |_| {
            let (client, body) = (self.client.clone(), body.clone());
            async move {
                let id = client.create_container(None, (*body).clone()).await.unwrap().id;
                client.start_container(&id, None::<StartContainerOptions>).await.unwrap();
                id
            }
        };
        stream::iter(0..count).map(one).buffer_unordered(concurrency).collect().await
    }

    pub async fn remove(&self, ids: Vec<String>, concurrency: usize) {
        let one = |id: String| async move {
            let stop = StopContainerOptions { t: Some(10), ..Default::default() };
            self.client.stop_container(&id, Some(stop)).await.unwrap();
            let remove = RemoveContainerOptions { v: true, ..Default::default() };
            self.client.remove_container(&id, Some(remove)).await.unwrap();
        };
        stream::iter(ids).for_each_concurrent(concurrency, one).await;
    }
}

/// Equals the request of the worker's `create_body`.
fn body() -> ContainerCreateBody {
    let labels = [("orchestrator", "kubeleet"), ("kubeleet.node", "direct")];
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
