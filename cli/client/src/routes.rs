//! One method per route of the API.

use api_types::{
    AppLockInput, BindVolumeInput, DeadLetterView, FindingView, GenerationView, IndexResultView, List,
    NodeView, PodView, QueueView, QueuesView, RecoveryView, RegistryInput, RegistryView, RouteView,
    ScaleInput, ServiceView, StatusView, ValueComparison, ValueInput, ValueView, VolumeView,
};
use model::event::ClusterEvent;
use model::ids::{AppName, LockId, RegistryHost};
use model::node::usage::{ClusterUsageView, GarbageView};
use model::spec::ServiceInput;
use model::value::ValueKind;
use reqwest::Method;
use reqwest::header::IF_MATCH;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::Client;

/// Selects pods to list. Unset fields select all.
#[derive(Debug, Clone, Default)]
pub struct PodFilter {
    /// Service.
    pub service: Option<String>,
    /// Node.
    pub node: Option<String>,
    /// Phase.
    pub phase: Option<String>,
    /// Label selector for the pod's service.
    pub label: Option<String>,
    /// Beginning of the uuid, or the whole name (`web-0`).
    pub prefix: Option<String>,
}

impl PodFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let fields = [
            ("service", &self.service),
            ("node", &self.node),
            ("phase", &self.phase),
            ("label", &self.label),
            ("prefix", &self.prefix),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

#[derive(Deserialize)]
struct ApiDocument {
    info: ApiInfo,
}

#[derive(Deserialize)]
struct ApiInfo {
    version: String,
}

/// A backup being read.
pub struct BackupStream {
    client: Client,
    response: reqwest::Response,
    operation: &'static str,
}

impl BackupStream {
    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks: the backup is then incomplete.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let chunk = self.response.chunk().await;
        let chunk = chunk.map_err(|error| self.client.request_failed(self.operation, &error, false))?;
        Ok(chunk.map(|bytes| bytes.to_vec()))
    }
}

impl Client {
    /// Returns the services that a label selector matches; all without one.
    pub async fn services(&self, selector: Option<String>) -> Result<Vec<ServiceView>, ClientError> {
        let query: Vec<_> = selector.into_iter().map(|selector| ("label", selector)).collect();
        self.all_pages("listing services", &["service"], &query).await
    }

    /// Returns the services of an app.
    pub async fn services_of_app(&self, app: &str) -> Result<Vec<ServiceView>, ClientError> {
        self.all_pages("listing the services of an app", &["service"], &[("app", app.to_owned())]).await
    }

    /// Returns one service.
    pub async fn service(&self, name: &str) -> Result<ServiceView, ClientError> {
        let operation = format!("reading service {name}");
        self.send_for_json(&operation, self.request(Method::GET, &["service", name], &[])).await
    }

    /// Creates a service. Fails with status 409 if it exists.
    pub async fn create_service(&self, service: &ServiceInput) -> Result<ServiceView, ClientError> {
        let operation = format!("creating service {}", service.name());
        self.send_for_json(&operation, self.write_request(Method::POST, &["service"]).json(service)).await
    }

    /// Creates or replaces a service. Fails with status 412 if it changed since it was read.
    pub async fn put_service(
        &self,
        service: &ServiceInput,
        before: Option<&ServiceView>,
    ) -> Result<ServiceView, ClientError> {
        let operation = format!("applying service {}", service.name());
        let path = ["service", service.name().as_str()];
        let mut request = self.write_request(Method::PUT, &path).json(service);
        if let Some(before) = before {
            request = request.header(IF_MATCH, entity_tag(before));
        }
        self.send_for_json(&operation, request).await
    }

    /// Asks whether a service would be stored. Writes nothing. Also succeeds if the check is impossible: with
    /// an API of the previous version or a read-only token.
    pub async fn check_service(&self, service: &ServiceInput) -> Result<(), ClientError> {
        let operation = format!("checking service {}", service.name());
        let path = ["service", service.name().as_str()];
        let query: Vec<_> = dry_run().into_iter().chain(self.partial_query()).collect();
        let request = self.request(Method::PUT, &path, &query).json(service);
        unless_unknown(self.send_for_success(&operation, request).await)
    }

    /// Asks whether a service could return to a former generation, as [`Client::check_service`].
    pub async fn check_undo(&self, name: &str, to: u64) -> Result<(), ClientError> {
        let [dry_run] = dry_run();
        let query = [dry_run, ("to", to.to_string())];
        let request = self.request(Method::POST, &["service", name, "undo"], &query);
        unless_unknown(self.send_for_success(&format!("checking service {name}"), request).await)
    }

    /// Takes or renews the lock of an app. Fails with status 409 if another client has it.
    pub async fn lock_app(&self, app: &AppName, input: &AppLockInput) -> Result<(), ClientError> {
        let request = self.request(Method::PUT, &["app", app.as_str(), "lock"], &[]).json(input);
        self.send_for_success(&format!("locking app {app}"), request).await
    }

    /// Releases the lock of an app.
    pub async fn unlock_app(&self, app: &AppName, id: &LockId) -> Result<(), ClientError> {
        let query = [("id", id.to_string())];
        let request = self.request(Method::DELETE, &["app", app.as_str(), "lock"], &query);
        self.send_for_success(&format!("unlocking app {app}"), request).await
    }

    /// Sets the number of pods of a service.
    pub async fn scale(&self, name: &str, replicas: u32) -> Result<ServiceView, ClientError> {
        let operation = format!("scaling service {name}");
        let request = self.write_request(Method::POST, &["service", name, "scale"]);
        self.send_for_json(&operation, request.json(&ScaleInput { replicas })).await
    }

    /// Changes some fields of a service; `patch` is a JSON merge patch.
    pub async fn patch_service(
        &self,
        name: &str,
        patch: &serde_json::Value,
    ) -> Result<ServiceView, ClientError> {
        let operation = format!("changing service {name}");
        let request = self.write_request(Method::PATCH, &["service", name]);
        self.send_for_json(&operation, request.json(patch)).await
    }

    /// Requests the replacement of all pods of a service.
    pub async fn restart(&self, name: &str) -> Result<ServiceView, ClientError> {
        let operation = format!("restarting service {name}");
        self.send_for_json(&operation, self.request(Method::POST, &["service", name, "restart"], &[])).await
    }

    /// Returns the current generation of a service, then its former ones, newest first.
    pub async fn history(&self, name: &str) -> Result<Vec<GenerationView>, ClientError> {
        let operation = format!("reading the history of service {name}");
        let request = self.request(Method::GET, &["service", name, "history"], &[]);
        let list: List<GenerationView> = self.send_for_json(&operation, request).await?;
        Ok(list.items)
    }

    /// Restores the specification of a former generation. Fails with status 412 if the service changed since
    /// it was read.
    pub async fn undo(&self, before: &ServiceView, to: u64) -> Result<ServiceView, ClientError> {
        let name = before.name.as_str();
        let operation = format!("undoing a change of service {name}");
        let query = [("to", to.to_string())];
        let request = self.request(Method::POST, &["service", name, "undo"], &query);
        self.send_for_json(&operation, request.header(IF_MATCH, entity_tag(before))).await
    }

    /// Pauses, resumes or promotes a rollout; `what` is `pause`, `resume` or `promote`.
    pub async fn mark_rollout(&self, name: &str, what: &str) -> Result<ServiceView, ClientError> {
        let operation = format!("{what} of the rollout of service {name}");
        self.send_for_json(&operation, self.request(Method::POST, &["service", name, what], &[])).await
    }

    /// Returns the results of a job's ended indices.
    pub async fn job_results(&self, name: &str) -> Result<Vec<IndexResultView>, ClientError> {
        let operation = format!("reading the results of job {name}");
        let request = self.request(Method::GET, &["service", name, "results"], &[]);
        let list: List<IndexResultView> = self.send_for_json(&operation, request).await?;
        Ok(list.items)
    }

    /// Creates a job of a cron now.
    pub async fn run_cron(&self, name: &str, job: Option<&str>) -> Result<ServiceView, ClientError> {
        let operation = format!("running cron {name}");
        let query: Vec<_> = job.map(|job| ("job", job.to_owned())).into_iter().collect();
        self.send_for_json(&operation, self.request(Method::POST, &["service", name, "run"], &query)).await
    }

    /// Requests the deletion of a service and its pods; with `volumes` also of its persistent volumes.
    pub async fn delete_service(&self, name: &str, volumes: bool) -> Result<(), ClientError> {
        let operation = format!("deleting service {name}");
        let query: Vec<_> = volumes.then(|| ("volumes", "true".to_owned())).into_iter().collect();
        self.send_for_success(&operation, self.request(Method::DELETE, &["service", name], &query)).await
    }

    /// Returns all persistent volumes.
    pub async fn volumes(&self) -> Result<Vec<VolumeView>, ClientError> {
        self.all_pages("listing volumes", &["volume"], &[]).await
    }

    /// Returns one persistent volume.
    pub async fn volume(&self, name: &str) -> Result<VolumeView, ClientError> {
        let operation = format!("reading volume {name}");
        self.send_for_json(&operation, self.request(Method::GET, &["volume", name], &[])).await
    }

    /// Requests the removal of a persistent volume with its data. With a node, removes only that node's
    /// leftover copy, which is not the volume.
    pub async fn remove_volume(&self, name: &str, node: Option<&str>) -> Result<(), ClientError> {
        let query: Vec<_> = node.map(|node| ("node", node.to_owned())).into_iter().collect();
        let request = self.request(Method::DELETE, &["volume", name], &query);
        self.send_for_success(&format!("removing volume {name}"), request).await
    }

    /// Makes a node's copy of a persistent volume the volume.
    pub async fn bind_volume(&self, name: &str, input: &BindVolumeInput) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &["volume", name, "bind"], &[]).json(input);
        self.send_for_success(&format!("choosing a copy of volume {name}"), request).await
    }

    /// Returns all selected pods.
    pub async fn pods(&self, filter: &PodFilter) -> Result<Vec<PodView>, ClientError> {
        self.all_pages("listing pods", &["pod"], &filter.query()).await
    }

    /// Returns the first `limit` selected pods, and true if there are more.
    pub async fn some_pods(
        &self,
        filter: &PodFilter,
        limit: usize,
    ) -> Result<(Vec<PodView>, bool), ClientError> {
        let mut query = filter.query();
        query.push(("limit", limit.to_string()));
        let page: List<PodView> =
            self.send_for_json("finding pods", self.request(Method::GET, &["pod"], &query)).await?;
        Ok((page.items, page.next.is_some()))
    }

    /// Returns the pod with this complete uuid.
    pub async fn pod(&self, id: &str) -> Result<PodView, ClientError> {
        let operation = format!("reading pod {id}");
        self.send_for_json(&operation, self.request(Method::GET, &["pod", id], &[])).await
    }

    /// Requests the stop of a pod.
    pub async fn stop_pod(&self, id: &str) -> Result<PodView, ClientError> {
        let operation = format!("stopping pod {id}");
        self.send_for_json(&operation, self.request(Method::DELETE, &["pod", id], &[])).await
    }

    /// Returns all nodes.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.all_pages("listing nodes", &["node"], &[]).await
    }

    /// Returns one node.
    pub async fn node(&self, name: &str) -> Result<NodeView, ClientError> {
        let operation = format!("reading node {name}");
        self.send_for_json(&operation, self.request(Method::GET, &["node", name], &[])).await
    }

    /// Cordons or uncordons a node: a cordoned node gets no new pods.
    pub async fn cordon(&self, name: &str, cordon: bool) -> Result<NodeView, ClientError> {
        let action = if cordon { "cordon" } else { "uncordon" };
        let request = self.request(Method::POST, &["node", name, action], &[]);
        self.send_for_json(&format!("{action}ing node {name}"), request).await
    }

    /// Removes a dead node; with `is_former`, only leftovers of earlier machines of its name.
    pub async fn remove_node(&self, name: &str, is_former: bool) -> Result<(), ClientError> {
        let former: &[_] = if is_former { &[("former", "true".to_owned())] } else { &[] };
        let request = self.request(Method::DELETE, &["node", name], former);
        self.send_for_success(&format!("removing node {name}"), request).await
    }

    /// Returns all secrets or configs, without their contents.
    pub async fn values(&self, kind: ValueKind) -> Result<Vec<ValueView>, ClientError> {
        self.all_pages(&format!("listing {kind}s"), &[kind.as_str()], &[]).await
    }

    /// Returns a secret or config, without its content.
    pub async fn value(&self, kind: ValueKind, name: &str) -> Result<ValueView, ClientError> {
        let request = self.request(Method::GET, &[kind.as_str(), name], &[]);
        self.send_for_json(&format!("reading {kind} {name}"), request).await
    }

    /// Creates a secret or config. Fails with status 409 if it exists.
    pub async fn create_value(&self, kind: ValueKind, input: &ValueInput) -> Result<ValueView, ClientError> {
        let request = self.request(Method::POST, &[kind.as_str()], &[]).json(input);
        self.send_for_json(&format!("creating the {kind}"), request).await
    }

    /// Stores the next version of a secret or config.
    pub async fn rotate_value(
        &self,
        kind: ValueKind,
        name: &str,
        input: &ValueInput,
    ) -> Result<ValueView, ClientError> {
        let request = self.request(Method::PUT, &[kind.as_str(), name], &[]).json(input);
        self.send_for_json(&format!("rotating {kind} {name}"), request).await
    }

    /// Returns true if the current version of a secret or config has this content.
    pub async fn compare_value(
        &self,
        kind: ValueKind,
        name: &str,
        input: &ValueInput,
    ) -> Result<ValueComparison, ClientError> {
        let request = self.request(Method::POST, &[kind.as_str(), name, "compare"], &[]).json(input);
        self.send_for_json(&format!("comparing {kind} {name}"), request).await
    }

    /// Deletes a secret or config.
    pub async fn delete_value(&self, kind: ValueKind, name: &str, force: bool) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &[kind.as_str(), name], &forced(force));
        self.send_for_success(&format!("deleting {kind} {name}"), request).await
    }

    /// Returns all registry logins, without passwords.
    pub async fn registries(&self) -> Result<Vec<RegistryView>, ClientError> {
        self.all_pages("listing registries", &["registry"], &[]).await
    }

    /// Returns the routes into the cluster.
    pub async fn routes(&self) -> Result<Vec<RouteView>, ClientError> {
        self.all_pages("listing routes", &["route"], &[]).await
    }

    /// Returns a registry login, without the password.
    pub async fn registry(&self, host: &RegistryHost) -> Result<RegistryView, ClientError> {
        let request = self.request(Method::GET, &["registry", host.as_str()], &[]);
        self.send_for_json(&format!("reading the login for {host}"), request).await
    }

    /// Stores a registry login.
    pub async fn put_registry(
        &self,
        host: &RegistryHost,
        input: &RegistryInput,
    ) -> Result<RegistryView, ClientError> {
        let request = self.request(Method::PUT, &["registry", host.as_str()], &[]).json(input);
        self.send_for_json(&format!("storing the login for {host}"), request).await
    }

    /// Deletes a registry login.
    pub async fn delete_registry(&self, host: &RegistryHost, force: bool) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["registry", host.as_str()], &forced(force));
        self.send_for_success(&format!("deleting the login for {host}"), request).await
    }

    /// Returns the lengths of all queues.
    pub async fn queues(&self) -> Result<QueuesView, ClientError> {
        self.send_for_json("listing queues", self.request(Method::GET, &["queue"], &[])).await
    }

    /// Returns the first `limit` entries of a queue, next one first.
    pub async fn queue(&self, key: &str, limit: usize) -> Result<QueueView, ClientError> {
        let operation = format!("reading queue {key}");
        let query = [("limit", limit.to_string())];
        self.send_for_json(&operation, self.request(Method::GET, &["queue", key], &query)).await
    }

    /// Returns the newest `limit` dead letters.
    pub async fn dead_letters(&self, limit: usize) -> Result<List<DeadLetterView>, ClientError> {
        let query = [("limit", limit.to_string())];
        self.send_for_json("reading dead letters", self.request(Method::GET, &["queue", "dq"], &query)).await
    }

    /// Returns all dead letters.
    pub async fn all_dead_letters(&self) -> Result<Vec<DeadLetterView>, ClientError> {
        self.all_pages("reading dead letters", &["queue", "dq"], &[]).await
    }

    /// Moves a dead letter back to its queue, with `edited` as its payload if given.
    pub async fn requeue_dead_letter(&self, id: &str, edited: Option<Vec<u8>>) -> Result<(), ClientError> {
        let mut request = self.request(Method::POST, &["queue", "dq", id, "requeue"], &[]);
        if let Some(edited) = edited {
            request = request.header("content-type", "application/octet-stream").body(edited);
        }
        self.send_for_success(&format!("requeueing dead letter {id}"), request).await
    }

    /// Deletes a dead letter.
    pub async fn delete_dead_letter(&self, id: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["queue", "dq", id], &[]);
        self.send_for_success(&format!("deleting dead letter {id}"), request).await
    }

    /// Returns the latest `count` events, oldest first.
    pub async fn last_events(&self, count: usize) -> Result<Vec<ClusterEvent>, ClientError> {
        let query = [("follow", "false".to_owned()), ("tail", count.to_string())];
        let request = self.request(Method::GET, &["event"], &query).header("accept", "application/json");
        let list: List<ClusterEvent> = self.send_for_json("reading events", request).await?;
        Ok(list.items)
    }

    /// Returns the version of the API.
    pub async fn api_version(&self) -> Result<String, ClientError> {
        let request = self.request(Method::GET, &["openapi.json"], &[]);
        let document: ApiDocument = self.send_for_json("reading the version of the API", request).await?;
        Ok(document.info.version)
    }

    /// Returns the garbage on a node's disk; removes it unless `dry_run` is set.
    pub async fn collect_garbage(&self, node: &str, dry_run: bool) -> Result<GarbageView, ClientError> {
        let operation = format!("collecting garbage on node {node}");
        let query = [("dry_run", dry_run.to_string())];
        self.send_for_json(&operation, self.request(Method::POST, &["node", node, "gc"], &query)).await
    }

    /// Returns the usage of nodes, and with `pods` of pods.
    pub async fn usage(&self, pods: bool) -> Result<ClusterUsageView, ClientError> {
        let request = self.request(Method::GET, &["stats"], &[("pods", pods.to_string())]);
        self.send_for_json("reading what is used", request).await
    }

    /// Returns the state of the cluster.
    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.send_for_json("reading the cluster's status", self.request(Method::GET, &["status"], &[])).await
    }

    /// Returns problems in Redis. With `repair`, repairs them where possible.
    pub async fn check_cluster(&self, repair: bool) -> Result<Vec<FindingView>, ClientError> {
        let (method, path, operation) = match repair {
            true => (Method::POST, "repair", "repairing the cluster"),
            false => (Method::GET, "check", "checking the cluster"),
        };
        let request = self.request(method, &["cluster", path], &[]);
        Ok(self.send_for_json::<List<FindingView>>(operation, request).await?.items)
    }

    /// Returns state that Redis has lost and workers have saved. With `apply`, writes it.
    pub async fn recover_cluster(
        &self,
        apply: bool,
        wait_seconds: u64,
        cluster: Option<&str>,
        with_deleted: bool,
    ) -> Result<RecoveryView, ClientError> {
        let mut query = vec![("apply", apply.to_string()), ("wait_seconds", wait_seconds.to_string())];
        query.extend(cluster.map(|cluster| ("cluster", cluster.to_owned())));
        // An API of the previous version does not know the option.
        query.extend(with_deleted.then(|| ("deleted", true.to_string())));
        let request = self.request(Method::POST, &["cluster", "recover"], &query);
        self.send_for_json("recovering the cluster", request).await
    }

    /// Opens a backup as a stream of bytes.
    pub async fn backup(&self) -> Result<BackupStream, ClientError> {
        let operation = "reading the backup";
        let response = self.send(operation, self.request(Method::GET, &["cluster", "backup"], &[])).await?;
        Ok(BackupStream { client: self.clone(), response, operation })
    }

    /// Returns the missing state of a backup part. With `apply`, writes it.
    pub async fn restore(
        &self,
        part: &str,
        apply: bool,
        with_deleted: bool,
        body: String,
    ) -> Result<RecoveryView, ClientError> {
        let mut query = vec![("part", part.to_owned()), ("apply", apply.to_string())];
        query.extend(with_deleted.then(|| ("deleted", true.to_string())));
        let request = self.request(Method::POST, &["cluster", "restore"], &query);
        let request = request.header("content-type", "application/x-ndjson").body(body);
        self.send_for_json("restoring the backup", request).await
    }

    async fn all_pages<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.extend(after.take().map(|after| ("after", after)));
            let page: List<T> =
                self.send_for_json(operation, self.request(Method::GET, path, &query)).await?;
            items.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(items),
            }
        }
    }
}

/// Returns the value for `If-Match`: a service's revision. An API of the previous version compares the
/// generation.
fn entity_tag(service: &ServiceView) -> String {
    let revision = if service.revision > 0 { service.revision } else { service.generation };
    format!("\"{revision}\"")
}

fn dry_run() -> [(&'static str, String); 1] {
    [("dry_run", "true".to_owned())]
}

/// Ignores refusals by an API of the previous version and of a read-only token.
fn unless_unknown(result: Result<(), ClientError>) -> Result<(), ClientError> {
    match result {
        Err(error) if matches!(error.status(), Some(400 | 403)) => Ok(()),
        result => result,
    }
}

/// Returns the query that forces a deletion despite users.
fn forced(force: bool) -> Vec<(&'static str, String)> {
    if force { vec![("force", "true".to_owned())] } else { Vec::new() }
}
