//! The routes, one method each.

use api::dto::{
    LetterView, List, NodeView, PodView, QueueView, QueuesView, ScaleInput, ServiceView, StatusView,
};
use common::event::ClusterEvent;
use common::spec::ServiceInput;
use reqwest::Method;
use serde::de::DeserializeOwned;

use super::{Client, ClientError};

/// Which pods to list; absent parts do not narrow.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodFilter {
    /// Of this service.
    pub(crate) service: Option<String>,
    /// On this node.
    pub(crate) node: Option<String>,
    /// In this phase.
    pub(crate) phase: Option<String>,
    /// Whose uuid begins so, or which is called so (`web-0`).
    pub(crate) prefix: Option<String>,
}

impl PodFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let parts = [
            ("service", &self.service),
            ("node", &self.node),
            ("phase", &self.phase),
            ("prefix", &self.prefix),
        ];
        parts.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

impl Client {
    /// All services that have all these labels (`key=value`).
    pub(crate) async fn services(&self, labels: &[String]) -> Result<Vec<ServiceView>, ClientError> {
        let query: Vec<_> = labels.iter().map(|label| ("label", label.clone())).collect();
        self.all("listing services", &["service"], &query).await
    }

    /// One service.
    pub(crate) async fn service(&self, name: &str) -> Result<ServiceView, ClientError> {
        let what = format!("reading service {name}");
        self.json(&what, self.request(Method::GET, &["service", name], &[])).await
    }

    /// A service that must not exist yet.
    pub(crate) async fn create_service(&self, service: &ServiceInput) -> Result<ServiceView, ClientError> {
        let what = format!("creating service {}", service.name);
        self.json(&what, self.request(Method::POST, &["service"], &[]).json(service)).await
    }

    /// A service, new or not.
    pub(crate) async fn put_service(&self, service: &ServiceInput) -> Result<ServiceView, ClientError> {
        let what = format!("applying service {}", service.name);
        let path = ["service", service.name.as_str()];
        self.json(&what, self.request(Method::PUT, &path, &[]).json(service)).await
    }

    /// Changes how many pods a service has.
    pub(crate) async fn scale(&self, name: &str, replicas: u32) -> Result<ServiceView, ClientError> {
        let what = format!("scaling service {name}");
        let request = self.request(Method::POST, &["service", name, "scale"], &[]);
        self.json(&what, request.json(&ScaleInput { replicas })).await
    }

    /// Says that a service is not wanted any more.
    pub(crate) async fn delete_service(&self, name: &str) -> Result<(), ClientError> {
        let what = format!("deleting service {name}");
        self.done(&what, self.request(Method::DELETE, &["service", name], &[])).await
    }

    /// Pods.
    pub(crate) async fn pods(&self, filter: &PodFilter) -> Result<Vec<PodView>, ClientError> {
        self.all("listing pods", &["pod"], &filter.query()).await
    }

    /// The first `limit` of these pods, and whether there are more.
    pub(crate) async fn some_pods(
        &self,
        filter: &PodFilter,
        limit: usize,
    ) -> Result<(Vec<PodView>, bool), ClientError> {
        let mut query = filter.query();
        query.push(("limit", limit.to_string()));
        let page: List<PodView> =
            self.json("looking for pods", self.request(Method::GET, &["pod"], &query)).await?;
        Ok((page.items, page.next.is_some()))
    }

    /// One pod by its whole uuid.
    pub(crate) async fn pod(&self, id: &str) -> Result<PodView, ClientError> {
        let what = format!("reading pod {id}");
        self.json(&what, self.request(Method::GET, &["pod", id], &[])).await
    }

    /// Asks for a pod to be stopped.
    pub(crate) async fn stop_pod(&self, id: &str) -> Result<PodView, ClientError> {
        let what = format!("stopping pod {id}");
        self.json(&what, self.request(Method::DELETE, &["pod", id], &[])).await
    }

    /// All nodes.
    pub(crate) async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.all("listing nodes", &["node"], &[]).await
    }

    /// One node.
    pub(crate) async fn node(&self, name: &str) -> Result<NodeView, ClientError> {
        let what = format!("reading node {name}");
        self.json(&what, self.request(Method::GET, &["node", name], &[])).await
    }

    /// Says whether new pods may be placed on a node.
    pub(crate) async fn cordon(&self, name: &str, cordon: bool) -> Result<NodeView, ClientError> {
        let verb = if cordon { "cordon" } else { "uncordon" };
        let request = self.request(Method::POST, &["node", name, verb], &[]);
        self.json(&format!("{verb}ing node {name}"), request).await
    }

    /// How much stands in the queues.
    pub(crate) async fn queues(&self) -> Result<QueuesView, ClientError> {
        self.json("listing queues", self.request(Method::GET, &["queue"], &[])).await
    }

    /// What stands in one queue, the next to be taken first.
    pub(crate) async fn queue(&self, key: &str, limit: usize) -> Result<QueueView, ClientError> {
        let what = format!("looking into queue {key}");
        let query = [("limit", limit.to_string())];
        self.json(&what, self.request(Method::GET, &["queue", key], &query)).await
    }

    /// The newest dead letters.
    pub(crate) async fn letters(&self, limit: usize) -> Result<List<LetterView>, ClientError> {
        let query = [("limit", limit.to_string())];
        self.json("reading dead letters", self.request(Method::GET, &["queue", "dq"], &query)).await
    }

    /// All dead letters.
    pub(crate) async fn all_letters(&self) -> Result<Vec<LetterView>, ClientError> {
        self.all("reading dead letters", &["queue", "dq"], &[]).await
    }

    /// Gives a dead letter another try.
    pub(crate) async fn requeue_letter(&self, id: &str) -> Result<(), ClientError> {
        let request = self.request(Method::POST, &["queue", "dq", id, "requeue"], &[]);
        self.done(&format!("requeueing dead letter {id}"), request).await
    }

    /// Throws a dead letter away.
    pub(crate) async fn drop_letter(&self, id: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["queue", "dq", id], &[]);
        self.done(&format!("dropping dead letter {id}"), request).await
    }

    /// The last events, oldest first.
    pub(crate) async fn last_events(&self, count: usize) -> Result<Vec<ClusterEvent>, ClientError> {
        let query = [("follow", "false".to_owned()), ("tail", count.to_string())];
        let request = self.request(Method::GET, &["event"], &query).header("accept", "application/json");
        let list: List<ClusterEvent> = self.json("reading events", request).await?;
        Ok(list.items)
    }

    /// How the cluster is.
    pub(crate) async fn status(&self) -> Result<StatusView, ClientError> {
        self.json("reading the cluster's status", self.request(Method::GET, &["status"], &[])).await
    }

    /// Every page of a collection.
    async fn all<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.extend(after.take().map(|after| ("after", after)));
            let page: List<T> = self.json(what, self.request(Method::GET, path, &query)).await?;
            items.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(items),
            }
        }
    }
}
