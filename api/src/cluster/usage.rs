//! Resource usage of nodes and pods.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use model::RedisMillis;
use model::ids::NodeName;
use model::node::usage::{ClusterUsageView, NodeUsageView, PodUsageView, UsageReport};
use store::{Store, StoreError};
use tokio::sync::Mutex;

/// Workers measure every two seconds.
const FRESH: Duration = Duration::from_secs(1);
const FIRST_REPORT_TIMEOUT: Duration = Duration::from_millis(2500);
const POLL: Duration = Duration::from_millis(200);

pub(crate) struct UsageSnapshot {
    pub(crate) view: ClusterUsageView,
    json: OnceLock<Bytes>,
}

impl UsageSnapshot {
    fn new(view: ClusterUsageView) -> Self {
        Self { view, json: OnceLock::new() }
    }

    /// Serialized once for all clients: with thousands of pods that is most of the work.
    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| serde_json::to_vec(&self.view).unwrap_or_default().into()).clone()
    }
}

type CachedUsage = (Instant, Arc<UsageSnapshot>);

#[derive(Default)]
pub(crate) struct UsageCache {
    read: Mutex<HashMap<Option<NodeName>, CachedUsage>>,
}

impl UsageCache {
    /// Without `node`: the usage of all live nodes.
    pub(crate) async fn of(
        &self,
        store: &Store,
        node: Option<&NodeName>,
    ) -> Result<Arc<UsageSnapshot>, StoreError> {
        // Held while reading: concurrent requests share the answer.
        let mut known = self.read.lock().await;
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
        if let Some((_, snapshot)) = known.get(&node.cloned()) {
            return Ok(snapshot.clone());
        }
        let snapshot = Arc::new(UsageSnapshot::new(read(store, node).await?));
        known.insert(node.cloned(), (Instant::now(), snapshot.clone()));
        Ok(snapshot)
    }
}

async fn read(store: &Store, node: Option<&NodeName>) -> Result<ClusterUsageView, StoreError> {
    let is_new = store.look_at_usage(node).await?;
    let names: Vec<NodeName> = match node {
        Some(node) => vec![node.clone()],
        None => store.beats_since(RedisMillis::MIN).await?.into_iter().map(|(name, _)| name).collect(),
    };
    let begun = Instant::now();
    loop {
        let reports = store.usage_of(&names).await?;
        let is_complete = reports.iter().all(Option::is_some);
        // Later requests would wait repeatedly for a node that does not measure.
        if is_complete || !is_new || begun.elapsed() > FIRST_REPORT_TIMEOUT {
            return Ok(view(names, reports));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn view(names: Vec<NodeName>, reports: Vec<Option<UsageReport>>) -> ClusterUsageView {
    let mut view = ClusterUsageView::default();
    for (name, report) in names.into_iter().zip(reports) {
        let Some(report) = report else {
            view.missing.push(name);
            continue;
        };
        let pods = report.pods.len() as u64;
        view.pods.extend(report.pods.into_iter().map(|pod| PodUsageView { node: name.clone(), pod }));
        view.nodes.push(NodeUsageView { name, machine: report.machine, pods });
    }
    view.missing.sort();
    view.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    view.pods.sort_by(|a, b| (&a.pod.name, &a.pod.uuid).cmp(&(&b.pod.name, &b.pod.uuid)));
    view
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::PodId;
    use model::node::usage::{PodUsage, Usage};

    use super::*;

    #[test]
    fn reports_are_put_together_by_name_and_missing_ones_are_named() {
        let pod = |name: &str| PodUsage {
            uuid: PodId::new(name).unwrap(),
            name: name.to_owned(),
            service: None,
            usage: Usage::default(),
        };
        let report = |pods: &[&str]| {
            Some(UsageReport { pods: pods.iter().map(|name| pod(name)).collect(), ..UsageReport::default() })
        };
        let names = ["w3", "w1", "w2"].map(|name| NodeName::new(name).unwrap());
        let view = view(names.to_vec(), vec![report(&["web-1", "db-0"]), None, report(&["web-0"])]);
        let pods: Vec<_> = view.pods.iter().map(|pod| format!("{} {}", pod.pod.name, pod.node)).collect();
        assert_eq!(pods, ["db-0 w3", "web-0 w2", "web-1 w3"]);
        let nodes: Vec<_> = view.nodes.iter().map(|node| (node.name.as_str(), node.pods)).collect();
        assert_eq!(nodes, [("w2", 1), ("w3", 2)]);
        assert_eq!(view.missing, [NodeName::new("w1").unwrap()]);
    }
}
