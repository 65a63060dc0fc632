//! Orders certificates on the proxy that holds the lease.
//!
//! The lease only avoids duplicate orders. A superseded order stores its certificate only if that expires
//! later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ingress::certificates::stored::StoredCertificates;
use model::ids::NodeName;
use store::StoreError;
use tokio::task::{Id, JoinSet};
use tokio::time::sleep;

use super::auto_hosts::AutoHosts;
use super::order::Ordering;

const LEASE: &str = "acme";
const LEASE_TIME: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_secs(5);
const MOST_ORDERS: usize = 4;

pub(super) struct Orderer {
    ordering: Ordering,
    holder: String,
    stored: Arc<StoredCertificates>,
    hosts: AutoHosts,
    running: JoinSet<()>,
    hosts_of_tasks: HashMap<Id, String>,
    unreadable: HashSet<String>,
}

impl Orderer {
    pub(super) fn new(
        ordering: Ordering,
        node: &NodeName,
        stored: Arc<StoredCertificates>,
        hosts: AutoHosts,
    ) -> Self {
        Self {
            ordering,
            holder: format!("{node}-{}", random_id()),
            stored,
            hosts,
            running: JoinSet::new(),
            hosts_of_tasks: HashMap::new(),
            unreadable: HashSet::new(),
        }
    }

    /// Another proxy repeats orders that are cancelled.
    pub(super) async fn run(mut self) {
        loop {
            let hosts = self.hosts.hosts();
            if let Err(error) = self.look(&hosts).await {
                tracing::debug!(%error, "the certificates to order cannot be read; retrying in 5 s");
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = self.hosts.changed() => {}
                Some(ended) = self.running.join_next_with_id() => {
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    self.hosts_of_tasks.remove(&id);
                }
            }
        }
    }

    async fn look(&mut self, hosts: &[String]) -> Result<(), StoreError> {
        let store = self.ordering.store.clone();
        if hosts.is_empty() || !store.lease(LEASE, &self.holder, LEASE_TIME).await? {
            return Ok(());
        }
        let (now, statuses) = store.certificate_statuses(hosts).await?;
        for (host, status) in hosts.iter().zip(statuses) {
            let status = match status {
                Ok(status) => status,
                Err(error) => {
                    if self.unreadable.insert(host.clone()) {
                        tracing::warn!(
                            "no certificate is ordered for {host}: {error}; DEL certificate:{host}"
                        );
                    }
                    continue;
                }
            };
            self.unreadable.remove(host);
            let directory = &self.ordering.settings.directory;
            let is_running = self.hosts_of_tasks.values().any(|running| running == host);
            if is_running || !status.wait(directory, now).is_zero() {
                continue;
            }
            // Redis may have lost the certificate that this proxy serves.
            if status.certificate.is_none() && self.put_back(host, now).await? {
                continue;
            }
            if self.running.len() < MOST_ORDERS {
                self.begin(host).await?;
            }
        }
        Ok(())
    }

    async fn put_back(&self, host: &str, now: u64) -> Result<bool, StoreError> {
        let Some(stored) = self.stored.stored(host) else { return Ok(false) };
        let status = stored.status();
        if !status.wait(&self.ordering.settings.directory, now).is_zero() {
            tracing::info!("the certificate of {host} is put back into Redis, which does not have it");
            self.ordering.store.put_certificate(&stored).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn begin(&mut self, host: &str) -> Result<(), StoreError> {
        let attempt = random_id();
        let begun = self.ordering.store.begin_certificate(host, LEASE, &self.holder, &attempt).await;
        let attempts = match begun {
            Ok(Some(attempts)) => attempts,
            Ok(None) => return Ok(()),
            Err(error) if error.is_broken_key() => return Ok(()),
            Err(error) => return Err(error),
        };
        tracing::info!("the certificate of {host} is ordered from {}", self.ordering.settings.directory);
        let (ordering, ordered) = (self.ordering.clone(), host.to_owned());
        let task = self.running.spawn(async move { ordering.order(&ordered, &attempt, attempts).await });
        self.hosts_of_tasks.insert(task.id(), host.to_owned());
        Ok(())
    }
}

fn random_id() -> String {
    format!("{:016x}", rand::random::<u64>())
}
