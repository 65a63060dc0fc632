//! Refuses services that do not fit the cluster.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::node::Node;
use parking_lot::Mutex;
use store::{Store, StoreError};

use crate::admission::capacity::{Demand, Shortage};

/// For admissions,
const MAX_AGE: Duration = Duration::from_secs(1);
/// or this multiple of the time that reading took.
const AGE_FACTOR: u32 = 20;
/// For refusals: recently freed resources must count.
const MAX_AGE_OF_REFUSAL: Duration = Duration::from_millis(100);
const READING_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
struct NodesView {
    /// Empty while the nodes are unreadable, which refuses nothing.
    nodes: Arc<[Node]>,
    read_at: Instant,
    took: Duration,
}

/// Recently admitted pods get their nodes within this time. Longer than [`MAX_AGE_OF_REFUSAL`].
const ASSIGNMENT_TIME: Duration = Duration::from_millis(250);
const MAX_ADMITTED: usize = 64;

#[derive(Default)]
pub(crate) struct CapacityGate {
    view: Mutex<Option<NodesView>>,
    reading: tokio::sync::Mutex<()>,
    /// The view may not show them yet.
    admitted: Mutex<VecDeque<(Instant, Demand)>>,
}

impl CapacityGate {
    pub(crate) async fn shortage(&self, store: &Store, demand: &Demand) -> Option<Shortage> {
        if demand.is_covered() {
            return None;
        }
        let nodes = self.recent_nodes(store).await;
        if demand.shortage(&nodes).is_none() {
            if !demand.may_lack_after(&self.recently_admitted(), &nodes) {
                self.admit(demand);
                return None;
            }
            tokio::time::sleep(ASSIGNMENT_TIME).await;
        }
        let shortage = demand.shortage(&self.nodes_now(store).await);
        if shortage.is_none() {
            self.admit(demand);
        }
        shortage
    }

    fn admit(&self, demand: &Demand) {
        let mut admitted = self.admitted.lock();
        admitted.push_back((Instant::now(), demand.clone()));
        if admitted.len() > MAX_ADMITTED {
            admitted.pop_front();
        }
    }

    fn recently_admitted(&self) -> Vec<Demand> {
        let mut admitted = self.admitted.lock();
        while admitted.front().is_some_and(|(at, _)| at.elapsed() > MAX_AGE) {
            admitted.pop_front();
        }
        admitted.iter().map(|(_, demand)| demand.clone()).collect()
    }

    pub(crate) async fn nodes_now(&self, store: &Store) -> Arc<[Node]> {
        self.nodes(store, MAX_AGE_OF_REFUSAL).await
    }

    /// While another request reads, the previous view serves.
    async fn recent_nodes(&self, store: &Store) -> Arc<[Node]> {
        match self.known(Duration::MAX).filter(|_| self.reading.try_lock().is_err()) {
            Some(nodes) => nodes,
            None => self.nodes(store, MAX_AGE).await,
        }
    }

    async fn nodes(&self, store: &Store, max_age: Duration) -> Arc<[Node]> {
        if let Some(nodes) = self.known(max_age) {
            return nodes;
        }
        let _turn = self.reading.lock().await;
        if let Some(nodes) = self.known(max_age) {
            return nodes;
        }
        let started = Instant::now();
        let nodes = match tokio::time::timeout(READING_TIMEOUT, read(store)).await {
            Ok(Ok(nodes)) => nodes,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the nodes cannot be read: nothing is refused for lack of resources");
                Arc::default()
            }
            Err(_) => Arc::default(),
        };
        let view = NodesView { nodes: nodes.clone(), read_at: started, took: started.elapsed() };
        *self.view.lock() = Some(view);
        nodes
    }

    fn known(&self, max_age: Duration) -> Option<Arc<[Node]>> {
        let view = self.view.lock();
        let view = view.as_ref()?;
        let max_age = max_age.max(view.took * AGE_FACTOR);
        (view.read_at.elapsed() < max_age).then(|| view.nodes.clone())
    }
}

/// Empty if one is unreadable, because it could have room.
async fn read(store: &Store) -> Result<Arc<[Node]>, StoreError> {
    let names = store.node_names().await?;
    let nodes = store.nodes(&names).await?;
    Ok(if nodes.iter().any(Result::is_err) { Arc::default() } else { nodes.found().into() })
}
