//! The search for a pod that lets a request or connection in.

use std::sync::Arc;
use std::time::Duration;

use common::ids::{PodId, ServiceName};
use tokio::time::Instant;

use crate::gate::{Pass, Refusal};

use super::Shared;
use super::pods::{Pod, Service, Table};

/// The longest wait until gates and closed ports are tried again: neither tells when it opens.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The search for a pod of one service, for one request or connection.
pub(super) struct Search<'a> {
    shared: &'a Shared,
    service: &'a ServiceName,
    table: Arc<Table>,
    /// Pods that refused since the last wait.
    refused: Vec<PodId>,
    has_refused_connection: bool,
    deadline: Option<Instant>,
}

/// Why there is no pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPod {
    /// None was ready.
    NotReady,
    /// Some were ready, but did not accept connections.
    NotListening,
}

impl<'a> Search<'a> {
    pub(super) fn new(shared: &'a Shared, service: &'a ServiceName) -> Self {
        Self {
            shared,
            service,
            table: shared.table.borrow().clone(),
            refused: Vec::new(),
            has_refused_connection: false,
            deadline: None,
        }
    }

    /// Returns the service as it is known now.
    pub(super) fn service(&self) -> Option<&Arc<Service>> {
        self.table.service(self.service)
    }

    /// Returns a pod that lets in. Waits for one if there is none.
    ///
    /// # Errors
    /// If there was none for as long as requests wait.
    pub(super) async fn next(&mut self) -> Result<(Arc<Pod>, Pass), NoPod> {
        loop {
            if let Some(found) = self.find() {
                return Ok(found);
            }
            self.wait().await?;
        }
    }

    /// Tries the pods until one lets in.
    fn find(&mut self) -> Option<(Arc<Pod>, Pass)> {
        let service = self.table.service(self.service)?.clone();
        let now = std::time::Instant::now();
        loop {
            let pod = service.choose(now, |pod| self.refused.contains(&pod.endpoint.pod))?;
            match self.enter(&pod) {
                Ok(pass) => return Some((pod, pass)),
                Err(_) => {
                    // Servers that stop wait for idle connections to end.
                    pod.pools.clear();
                    self.refused.push(pod.endpoint.pod.clone());
                }
            }
        }
    }

    fn enter(&self, pod: &Pod) -> Result<Pass, Refusal> {
        let (id, assignment) = (&pod.endpoint.pod, &pod.endpoint.assignment);
        #[cfg(test)]
        if matches!(self.shared.ablation, Some(super::tests::Ablation::GateNotLookedAt)) {
            return self.shared.gates.enter_without_looking(id, assignment);
        }
        self.shared.gates.enter(id, assignment)
    }

    /// Rules out a pod until the next wait: it did not answer.
    pub(super) fn rule_out(&mut self, pod: &Pod, has_refused_connection: bool) {
        self.has_refused_connection |= has_refused_connection;
        self.refused.push(pod.endpoint.pod.clone());
    }

    /// Waits until something has changed, or for a moment.
    async fn wait(&mut self) -> Result<(), NoPod> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.shared.config.wait);
        if now >= deadline {
            return Err(if self.has_refused_connection { NoPod::NotListening } else { NoPod::NotReady });
        }
        let mut table = self.shared.table.clone();
        if Arc::ptr_eq(&table.borrow_and_update(), &self.table) {
            let until = deadline.min(now + RETRY_INTERVAL);
            // An end of the channel is the end of the proxy.
            let _ = tokio::time::timeout_at(until, table.changed()).await;
        }
        self.table = table.borrow().clone();
        self.refused.clear();
        Ok(())
    }
}
