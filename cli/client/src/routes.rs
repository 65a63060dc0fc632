//! Requests that several commands send, or that are more than a [`Client::call`].

use api_types::{
    AppLockInput, DeadLetterView, DrainView, List, NodeLabelsPatch, NodeView, PlanInput, PlanView,
    PodPlacementView, PodView, QueuesView, ScaleInput, ServiceView, StatusView, ValueInput, ValueView,
};
use model::event::ClusterEvent;
use model::ids::AppName;
use model::spec::ServiceInput;
use model::value::ValueKind;
use reqwest::Method;
use reqwest::header::{ACCEPT, IF_MATCH};
use serde::de::DeserializeOwned;

use crate::call::ApiCall;
use crate::error::ClientError;
use crate::http::Client;

/// Unset fields select all.
#[derive(Debug, Clone, Default)]
pub struct PodFilter {
    pub service: Option<String>,
    pub node: Option<String>,
    pub phase: Option<String>,
    /// A label of the pod's service.
    pub label: Option<String>,
    /// Beginning of the uuid, or the whole name (`web-0`).
    pub prefix: Option<String>,
}

impl PodFilter {
    fn select<'a>(&self, pods: ApiCall<'a>) -> ApiCall<'a> {
        let pods = pods.query("service", self.service.as_ref()).query("node", self.node.as_ref());
        let pods = pods.query("phase", self.phase.as_ref()).query("label", self.label.as_ref());
        pods.query("prefix", self.prefix.as_ref())
    }
}

impl Client {
    /// `of` is the type in the path, such as `node`.
    pub async fn list<T: DeserializeOwned>(&self, of: &str) -> Result<Vec<T>, ClientError> {
        let plural = of.strip_suffix('y').map_or_else(|| format!("{of}s"), |stem| format!("{stem}ies"));
        self.call(Method::GET, &[of], format!("listing {plural}")).views().await
    }

    pub async fn get<T: DeserializeOwned>(&self, of: &str, name: &str) -> Result<T, ClientError> {
        self.call(Method::GET, &[of, name], format!("reading {of} {name}")).view().await
    }

    pub async fn services(&self, selector: Option<String>) -> Result<Vec<ServiceView>, ClientError> {
        self.call(Method::GET, &["service"], "listing services").query("label", selector).views().await
    }

    pub async fn services_of_app(&self, app: &str) -> Result<Vec<ServiceView>, ClientError> {
        let call = self.call(Method::GET, &["service"], "listing the services of an app");
        call.query("app", Some(app)).views().await
    }

    pub async fn service(&self, name: &str) -> Result<ServiceView, ClientError> {
        self.get("service", name).await
    }

    /// Fails with status 409 if it exists.
    pub async fn create_service(&self, service: &ServiceInput) -> Result<ServiceView, ClientError> {
        let operation = format!("creating service {}", service.name());
        self.write(Method::POST, &["service"], operation).json(service).view().await
    }

    /// Fails with status 412 if it changed since `before` was read.
    pub async fn put_service(
        &self,
        service: &ServiceInput,
        before: Option<&ServiceView>,
    ) -> Result<ServiceView, ClientError> {
        let operation = format!("applying service {}", service.name());
        let mut call = self.write(Method::PUT, &["service", service.name().as_str()], operation);
        if let Some(before) = before {
            call = call.header(IF_MATCH, entity_tag(before));
        }
        call.json(service).view().await
    }

    /// Writes nothing. Also succeeds if a read-only token makes the check impossible.
    pub async fn check_service(&self, service: &ServiceInput) -> Result<(), ClientError> {
        let path = ["service", service.name().as_str()];
        let call = self.write(Method::PUT, &path, format!("checking service {}", service.name()));
        unless_read_only(call.query("dry_run", Some(true)).json(service).done().await)
    }

    /// As [`Client::check_service`].
    pub async fn check_undo(&self, name: &str, to: u64) -> Result<(), ClientError> {
        let call = self.call(Method::POST, &["service", name, "undo"], format!("checking service {name}"));
        unless_read_only(call.query("dry_run", Some(true)).query("to", Some(to)).done().await)
    }

    /// Fails with status 409 if another client has the lock.
    pub async fn lock_app(&self, app: &AppName, input: &AppLockInput) -> Result<(), ClientError> {
        let call = self.call(Method::PUT, &["app", app.as_str(), "lock"], format!("locking app {app}"));
        call.json(input).done().await
    }

    pub async fn scale(&self, name: &str, replicas: u32) -> Result<ServiceView, ClientError> {
        let path = ["service", name, "scale"];
        let call = self.write(Method::POST, &path, format!("scaling service {name}"));
        call.json(&ScaleInput { replicas }).view().await
    }

    /// `patch` is a JSON merge patch.
    pub async fn patch_service(
        &self,
        name: &str,
        patch: &serde_json::Value,
    ) -> Result<ServiceView, ClientError> {
        let operation = format!("changing service {name}");
        self.write(Method::PATCH, &["service", name], operation).json(patch).view().await
    }

    /// Fails with status 412 if the service changed since it was read.
    pub async fn undo(&self, before: &ServiceView, to: u64) -> Result<ServiceView, ClientError> {
        let name = before.name.as_str();
        let operation = format!("undoing a change of service {name}");
        let call = self.call(Method::POST, &["service", name, "undo"], operation).query("to", Some(to));
        call.header(IF_MATCH, entity_tag(before)).view().await
    }

    pub async fn delete_service(&self, name: &str, volumes: bool) -> Result<(), ClientError> {
        let call = self.call(Method::DELETE, &["service", name], format!("deleting service {name}"));
        call.query("volumes", volumes.then_some(true)).done().await
    }

    pub async fn pods(&self, filter: &PodFilter) -> Result<Vec<PodView>, ClientError> {
        filter.select(self.call(Method::GET, &["pod"], "listing pods")).views().await
    }

    pub async fn some_pods(
        &self,
        filter: &PodFilter,
        limit: usize,
    ) -> Result<(Vec<PodView>, bool), ClientError> {
        let call = filter.select(self.call(Method::GET, &["pod"], "finding pods"));
        let page: List<PodView> = call.query("limit", Some(limit)).view().await?;
        Ok((page.items, page.next.is_some()))
    }

    pub async fn pod(&self, id: &str) -> Result<PodView, ClientError> {
        self.get("pod", id).await
    }

    pub async fn explain_pod(&self, id: &str) -> Result<PodPlacementView, ClientError> {
        self.call(Method::GET, &["pod", id, "why"], format!("explaining pod {id}")).view().await
    }

    pub async fn stop_pod(&self, id: &str) -> Result<PodView, ClientError> {
        self.call(Method::DELETE, &["pod", id], format!("stopping pod {id}")).view().await
    }

    pub async fn cordon(&self, name: &str, cordon: bool) -> Result<NodeView, ClientError> {
        let action = if cordon { "cordon" } else { "uncordon" };
        let operation = format!("{action}ing node {name}");
        self.call(Method::POST, &["node", name, action], operation).view().await
    }

    pub async fn plan(&self, changes: &PlanInput) -> Result<PlanView, ClientError> {
        self.call(Method::POST, &["plan"], "planning").json(changes).view().await
    }

    /// The pods of the node, and where a drain moves them, or would.
    pub async fn drain_plan(&self, name: &str) -> Result<DrainView, ClientError> {
        self.call(Method::GET, &["node", name, "drain"], format!("planning the drain of {name}")).view().await
    }

    /// `deadline` is in seconds.
    pub async fn drain(
        &self,
        name: &str,
        deadline: Option<u64>,
        stop_bound: bool,
    ) -> Result<DrainView, ClientError> {
        let call = self.call(Method::POST, &["node", name, "drain"], format!("draining node {name}"));
        let call = call.query("deadline", deadline).query("stop_bound", stop_bound.then_some(true));
        call.view().await
    }

    pub async fn label_node(&self, name: &str, changes: &NodeLabelsPatch) -> Result<NodeView, ClientError> {
        let operation = format!("labelling node {name}");
        self.call(Method::PATCH, &["node", name, "labels"], operation).json(changes).view().await
    }

    /// Fails with status 409 if it exists.
    pub async fn create_value(&self, kind: ValueKind, input: &ValueInput) -> Result<ValueView, ClientError> {
        let operation = format!("creating the {kind}");
        self.call(Method::POST, &[kind.as_str()], operation).json(input).view().await
    }

    pub async fn rotate_value(
        &self,
        kind: ValueKind,
        name: &str,
        input: &ValueInput,
    ) -> Result<ValueView, ClientError> {
        let operation = format!("rotating {kind} {name}");
        self.call(Method::PUT, &[kind.as_str(), name], operation).json(input).view().await
    }

    pub async fn delete_value(&self, kind: ValueKind, name: &str, force: bool) -> Result<(), ClientError> {
        let call = self.call(Method::DELETE, &[kind.as_str(), name], format!("deleting {kind} {name}"));
        call.query("force", force.then_some(true)).done().await
    }

    pub async fn queues(&self) -> Result<QueuesView, ClientError> {
        self.call(Method::GET, &["queue"], "listing queues").view().await
    }

    /// The newest come first; all without a limit.
    pub async fn dead_letters(&self, limit: Option<u32>) -> Result<Vec<DeadLetterView>, ClientError> {
        let call = self.call(Method::GET, &["queue", "dq"], "reading dead letters").query("limit", limit);
        match limit {
            Some(_) => Ok(call.view::<List<_>>().await?.items),
            None => call.views().await,
        }
    }

    /// `edited` replaces the payload.
    pub async fn requeue_dead_letter(&self, id: &str, edited: Option<Vec<u8>>) -> Result<(), ClientError> {
        let operation = format!("requeueing dead letter {id}");
        let mut call = self.call(Method::POST, &["queue", "dq", id, "requeue"], operation);
        if let Some(edited) = edited {
            call = call.body("application/octet-stream", edited);
        }
        call.done().await
    }

    /// Oldest first.
    pub async fn last_events(&self, count: usize) -> Result<Vec<ClusterEvent>, ClientError> {
        let call = self.call(Method::GET, &["event"], "reading events").query("follow", Some(false));
        call.query("tail", Some(count)).header(ACCEPT, "application/json").views().await
    }

    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.call(Method::GET, &["status"], "reading the cluster's status").view().await
    }
}

fn entity_tag(service: &ServiceView) -> String {
    format!("\"{}\"", service.revision)
}

fn unless_read_only(result: Result<(), ClientError>) -> Result<(), ClientError> {
    match result {
        Err(error) if error.status() == Some(403) => Ok(()),
        result => result,
    }
}
