//! Finds and serves external workers: nodes that other programs run (docs/reference/redis.md).
//!
//! Every program that writes `hb:<worker>` is a node, alive as long as the value changes; every payload in
//! its container set is a running pod.
//!
//! A heartbeat key alone makes no node: it may be left over, or a kubeleet worker's whose record was lost.
//! Such a worker writes none before it has registered again, so a worker without a record is external once
//! its value changes.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use daemon::control_loop::{Loop, Next};
use model::ids::{NodeName, SchedulerId};
use model::node::NodeKind;
use model::pod::payload::Payload;
use store::{ExternalBeat, ExternalSign, Store, StoreError};

use crate::context::SchedulerContext;

const SCAN_PAGE_SIZE: usize = 1000;
const LEASE_NAME: &str = "guests";
const LEASE_TIME: Duration = Duration::from_secs(10);
/// Beyond it some are logged again.
const MAX_LOGGED_NAMES: usize = 1000;

pub(crate) struct ExternalWorkerLoop {
    store: Store,
    id: SchedulerId,
    scan_interval: Duration,
    serve_interval: Duration,
    max_pods: u64,
    scan_cursor: u64,
    next_scan_at: Instant,
    last_served_at: Option<Instant>,
    /// As of the start of the scan.
    kubeleet_workers: HashSet<NodeName>,
    external_workers: HashSet<NodeName>,
    /// With the heartbeat when their record was first missing; empty before.
    candidates: HashMap<NodeName, Vec<u8>>,
    logged: HashSet<NodeName>,
}

impl Loop<StoreError> for ExternalWorkerLoop {
    const NAME: &'static str = "external_workers";

    async fn step(&mut self) -> Result<Next, StoreError> {
        if !self.store.lease(LEASE_NAME, &self.id, LEASE_TIME).await? {
            return Ok(Next::Rest);
        }
        if Instant::now() >= self.next_scan_at {
            self.scan_page().await?;
        }
        if self.last_served_at.is_none_or(|at| at.elapsed() >= self.serve_interval) {
            self.last_served_at = Some(Instant::now());
            self.look_for_beats().await?;
            for name in self.external_workers.clone() {
                self.serve(&name, &[]).await?;
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.scan_interval.min(self.serve_interval)).await;
        Ok(())
    }
}

impl ExternalWorkerLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            scan_interval: context.timings.scan_interval,
            serve_interval: context.timings.external_worker_interval,
            max_pods: context.external_worker_pods,
            scan_cursor: 0,
            next_scan_at: Instant::now(),
            last_served_at: None,
            kubeleet_workers: HashSet::new(),
            external_workers: HashSet::new(),
            candidates: HashMap::new(),
            logged: HashSet::new(),
        }
    }

    async fn scan_page(&mut self) -> Result<(), StoreError> {
        if self.scan_cursor == 0 {
            self.read_known_nodes().await?;
        }
        let (next, signs) = self.store.scan_for_external_workers(self.scan_cursor, SCAN_PAGE_SIZE).await?;
        for sign in signs {
            match sign {
                ExternalSign::Heartbeat(name) => {
                    let is_known =
                        self.kubeleet_workers.contains(&name) || self.external_workers.contains(&name);
                    if !is_known {
                        self.candidates.entry(name).or_default();
                    }
                }
                ExternalSign::Queue(name) => self.check_queue(name).await?,
            }
        }
        self.scan_cursor = next;
        self.next_scan_at = Instant::now() + if next == 0 { self.serve_interval } else { self.scan_interval };
        Ok(())
    }

    async fn read_known_nodes(&mut self) -> Result<(), StoreError> {
        let names = self.store.node_names().await?;
        let nodes = self.store.nodes(&names).await?.found();
        let (external, kubeleet): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| node.kind == NodeKind::External);
        self.external_workers = external.into_iter().map(|node| node.name).collect();
        self.kubeleet_workers = kubeleet.into_iter().map(|node| node.name).collect();
        Ok(())
    }

    async fn look_for_beats(&mut self) -> Result<(), StoreError> {
        let names: Vec<NodeName> = self.candidates.keys().cloned().collect();
        let values = self.store.heartbeat_values(&names).await?;
        for (name, value) in names.into_iter().zip(values) {
            let Some(seen) = self.candidates.remove(&name) else { continue };
            match value {
                None => drop(self.external_workers.insert(name)),
                Some(value) if value.is_empty() => {}
                Some(value) if seen.is_empty() || seen == value => {
                    self.candidates.insert(name, value);
                }
                Some(_) => self.serve(&name, &seen).await?,
            }
        }
        Ok(())
    }

    async fn check_queue(&mut self, name: NodeName) -> Result<(), StoreError> {
        if self.kubeleet_workers.contains(&name)
            || self.external_workers.contains(&name)
            || self.logged.contains(&name)
        {
            return Ok(());
        }
        match self.store.node(&name).await {
            Ok(None) => tracing::warn!(
                "pods wait in pq:{name}, but no worker named {name} has ever registered; \
                 start that worker, or move the payloads to sq"
            ),
            Ok(Some(_)) => return Ok(()),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                tracing::warn!("pods wait in pq:{name}, but the record node:{name} is unreadable: {error}");
            }
        }
        if self.logged.len() >= MAX_LOGGED_NAMES {
            self.logged.clear();
        }
        self.logged.insert(name);
        Ok(())
    }

    async fn serve(&mut self, name: &NodeName, seen: &[u8]) -> Result<(), StoreError> {
        match self.try_serve(name, seen).await {
            Err(error) if !error.is_transient() => {
                if self.logged.insert(name.clone()) {
                    tracing::error!(
                        node = %name,
                        "this external worker cannot be served: {error}; fix the key, retrying every {:?}",
                        self.serve_interval
                    );
                }
                Ok(())
            }
            result => result,
        }
    }

    async fn try_serve(&mut self, name: &NodeName, seen: &[u8]) -> Result<(), StoreError> {
        match self.store.external_beat(name, self.max_pods, seen).await? {
            ExternalBeat::Ours => {
                self.external_workers.remove(name);
                self.kubeleet_workers.insert(name.clone());
                return Ok(());
            }
            ExternalBeat::Joined => {
                self.external_workers.insert(name.clone());
                tracing::info!(
                    node = %name,
                    "an external worker joined; it can be neither fenced nor told to stop a pod"
                );
            }
            ExternalBeat::Beat | ExternalBeat::Silent => {}
            ExternalBeat::Draining => return Ok(()),
        }
        let set = self.store.container_set(name).await?;
        // Only the external worker can have added an unreadable payload.
        let running: Vec<Payload> = set.into_iter().filter_map(|raw| Payload::parse(raw).ok()).collect();
        self.store.external_ack(name, &running).await?;
        Ok(())
    }
}
