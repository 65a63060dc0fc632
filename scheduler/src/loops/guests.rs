//! Finds and serves nodes that other programs are (docs/REDIS.md, "Guests").
//!
//! Restores: whoever writes `hb:<worker>` and serves its queues is a node, alive as long as the value changes; what
//! stands in its container set runs there. One scheduler at a time does this, to save work.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::ids::{NodeName, SchedulerId};
use common::node::NodeKind;
use common::payload::Payload;
use common::store::{GuestBeat, GuestSign, Store, StoreError};

use crate::Context;
use crate::runner::{Loop, Next};

/// Keys looked at in one page of the walk.
const PAGE: usize = 1000;
/// The right to run this loop lapses after so long.
const LEASE: Duration = Duration::from_secs(10);
/// Names remembered as having been said; beyond that, some are said again.
const SAID: usize = 1000;

/// The loop.
pub(crate) struct Guests {
    store: Store,
    id: SchedulerId,
    tick: Duration,
    guest_tick: Duration,
    max_pods: u64,
    /// Where the walk over the keys goes on, and when.
    cursor: u64,
    walk_from: Instant,
    served_at: Option<Instant>,
    /// Our own workers' names, as of the beginning of the walk.
    ours: HashSet<NodeName>,
    guests: HashSet<NodeName>,
    said: HashSet<NodeName>,
}

impl Loop for Guests {
    const NAME: &'static str = "guests";

    async fn step(&mut self) -> Result<Next, StoreError> {
        if !self.store.lease("guests", &self.id, LEASE).await? {
            return Ok(Next::Rest);
        }
        if Instant::now() >= self.walk_from {
            self.walk_a_page().await?;
        }
        if self.served_at.is_none_or(|at| at.elapsed() >= self.guest_tick) {
            self.served_at = Some(Instant::now());
            for name in self.guests.clone() {
                self.serve(&name).await?;
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.tick.min(self.guest_tick)).await;
        Ok(())
    }
}

impl Guests {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            tick: context.pace.scan_tick,
            guest_tick: context.pace.guest_tick,
            max_pods: context.guest_pods,
            cursor: 0,
            walk_from: Instant::now(),
            served_at: None,
            ours: HashSet::new(),
            guests: HashSet::new(),
            said: HashSet::new(),
        }
    }

    async fn walk_a_page(&mut self) -> Result<(), StoreError> {
        if self.cursor == 0 {
            self.recall_nodes().await?;
        }
        let (next, signs) = self.store.scan_for_guests(self.cursor, PAGE).await?;
        for sign in signs {
            match sign {
                GuestSign::Heartbeat(name) if !self.ours.contains(&name) => {
                    self.guests.insert(name);
                }
                GuestSign::Heartbeat(_) => {}
                GuestSign::Queue(name) => self.mind_queue(name).await?,
            }
        }
        self.cursor = next;
        self.walk_from = Instant::now() + if next == 0 { self.guest_tick } else { self.tick };
        Ok(())
    }

    /// Which nodes are ours and which are guests, before a walk.
    async fn recall_nodes(&mut self) -> Result<(), StoreError> {
        let names = self.store.node_names().await?;
        let (nodes, _) = self.store.nodes_each(&names).await?;
        let (guests, ours): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| node.kind == NodeKind::Guest);
        self.guests = guests.into_iter().map(|node| node.name).collect();
        self.ours = ours.into_iter().map(|node| node.name).collect();
        Ok(())
    }

    /// Says once that pods wait for a worker that never was.
    async fn mind_queue(&mut self, name: NodeName) -> Result<(), StoreError> {
        if self.ours.contains(&name) || self.guests.contains(&name) || self.said.contains(&name) {
            return Ok(());
        }
        match self.store.node(&name).await {
            Ok(None) => tracing::warn!("pods wait in pq:{name}, but no worker of that name was ever seen"),
            Ok(Some(_)) => return Ok(()),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => tracing::warn!("pods wait in pq:{name}, and node:{name} can not be read: {error}"),
        }
        if self.said.len() >= SAID {
            self.said.clear();
        }
        self.said.insert(name);
        Ok(())
    }

    async fn serve(&mut self, name: &NodeName) -> Result<(), StoreError> {
        match self.serve_one(name).await {
            Err(error) if !error.is_transient() => {
                // Its own matter, and said once: the others are served.
                if self.said.insert(name.clone()) {
                    tracing::error!(node = %name, "this guest can not be served: {error}");
                }
                Ok(())
            }
            done => done,
        }
    }

    async fn serve_one(&mut self, name: &NodeName) -> Result<(), StoreError> {
        match self.store.guest_beat(name, self.max_pods).await? {
            GuestBeat::Ours => {
                self.guests.remove(name);
                self.ours.insert(name.clone());
                return Ok(());
            }
            GuestBeat::Joined => {
                tracing::info!(node = %name, "a guest joins: it can be neither fenced nor told to stop a pod");
            }
            GuestBeat::Beat | GuestBeat::Silent => {}
            GuestBeat::Draining => return Ok(()),
        }
        let set = self.store.container_set(name).await?;
        // What can not be read is the guest's own affair: it put it there.
        let running: Vec<Payload> = set.into_iter().filter_map(|raw| Payload::parse(raw).ok()).collect();
        self.store.guest_ack(name, &running).await?;
        Ok(())
    }
}
