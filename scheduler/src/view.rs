//! This scheduler's copy of the nodes. It may be outdated: the script refuses invalid decisions, and those
//! nodes are read again.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use model::RedisMillis;
use model::ids::NodeName;
use model::node::{Node, Resources};
use model::spec::PlacementProfile;
use placement::{ClusterSnapshot, PlacedPods, PodRequest, Weights};
use store::{Assignment, Store, StoreError};

const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(2);
/// Before the newest known heartbeat: none is missed.
const BEAT_OVERLAP_MILLIS: RedisMillis = 1_000;
/// How long a node with broken keys is left out.
const QUARANTINE_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefreshScope {
    Changes,
    /// Also the list of all nodes.
    Members,
    All,
}

pub(crate) struct ClusterView {
    snapshot: ClusterSnapshot,
    newest_beat: RedisMillis,
    clock: Option<(RedisMillis, Instant)>,
    members_read_at: Option<Instant>,
    all_read_at: Option<Instant>,
    /// See [`Store::freed`]; before all nodes were read last.
    freed: Option<u64>,
    quarantined: HashMap<NodeName, Instant>,
}

impl ClusterView {
    pub(crate) fn new(weights: Weights) -> Self {
        Self {
            snapshot: ClusterSnapshot::new(weights),
            newest_beat: 0,
            clock: None,
            members_read_at: None,
            all_read_at: None,
            freed: None,
            quarantined: HashMap::new(),
        }
    }

    pub(crate) fn snapshot(&self) -> &ClusterSnapshot {
        &self.snapshot
    }

    pub(crate) fn snapshot_mut(&mut self) -> &mut ClusterSnapshot {
        &mut self.snapshot
    }

    /// Counts as used until the node is read again.
    pub(crate) fn commit(&mut self, assignment: &Assignment, pod: &PodRequest) {
        self.snapshot.commit(&assignment.node, assignment.request);
        self.snapshot.commit_ports(&assignment.node, &assignment.host_ports, pod.name());
        if let Some(named) = &pod.requirements.named {
            self.snapshot.commit_ids(&assignment.node, named, pod.name());
        }
        if let Some(generation) = &pod.generation {
            self.snapshot.commit_placed(&assignment.node, generation);
        }
        if pod.requirements.profile == PlacementProfile::RoundRobin {
            self.snapshot.commit_use(&assignment.node);
        }
    }

    pub(crate) fn set_needs(&mut self, needs: Vec<(Resources, u64)>) {
        self.snapshot.set_needs(needs);
    }

    pub(crate) fn set_placed(&mut self, placed: PlacedPods) {
        self.snapshot.set_placed(placed);
    }

    /// Redis' clock as last read, plus the time since.
    pub(crate) fn now(&self) -> RedisMillis {
        self.clock.map_or(0, |(time, read_at)| time + read_at.elapsed().as_millis() as RedisMillis)
    }

    pub(crate) async fn refresh(&mut self, store: &Store, max_age: Duration) -> Result<(), StoreError> {
        if self.clock.is_some_and(|(_, read_at)| read_at.elapsed() < max_age) {
            return Ok(());
        }
        let are_members_due = self.members_read_at.is_none_or(|at| at.elapsed() >= MEMBERSHIP_INTERVAL);
        self.read(store, if are_members_due { RefreshScope::Members } else { RefreshScope::Changes }).await
    }

    pub(crate) fn freed(&self) -> Option<u64> {
        self.freed
    }

    pub(crate) fn since_all_read(&self) -> Option<Duration> {
        self.all_read_at.map(|at| at.elapsed())
    }

    /// Unless read after `moment`.
    pub(crate) async fn read_all_after(&mut self, store: &Store, moment: Instant) -> Result<(), StoreError> {
        if self.all_read_at.is_some_and(|at| at >= moment) {
            return Ok(());
        }
        self.read(store, RefreshScope::All).await
    }

    pub(crate) async fn read_nodes(&mut self, store: &Store, names: &[NodeName]) -> Result<(), StoreError> {
        for (name, node) in names.iter().zip(store.nodes(names).await?) {
            match node {
                Ok(Some(node)) => self.upsert(node),
                Ok(None) => drop(self.snapshot.remove(name)),
                Err(error) => self.quarantine(name, &error),
            }
        }
        Ok(())
    }

    pub(crate) fn quarantine(&mut self, name: &NodeName, error: &StoreError) {
        self.snapshot.remove(name);
        if self.quarantined.insert(name.clone(), Instant::now()).is_none() {
            tracing::error!(
                node = %name,
                "no pods are placed on this node, because its keys in Redis are broken: {error}; \
                 fix the key; the node is tried again every {QUARANTINE_TIME:?}"
            );
        }
    }

    async fn read(&mut self, store: &Store, scope: RefreshScope) -> Result<(), StoreError> {
        let started = Instant::now();
        let since = match scope {
            RefreshScope::Changes => self.newest_beat.saturating_sub(BEAT_OVERLAP_MILLIS),
            RefreshScope::Members | RefreshScope::All => 0,
        };
        if scope == RefreshScope::All {
            self.freed = Some(store.freed().await?);
        }
        let (now, beats) = tokio::try_join!(store.redis_now(), store.beats_since(since))?;
        let has_changed = |name: &NodeName, beat: RedisMillis| {
            scope == RefreshScope::All || self.snapshot.get(name).is_none_or(|node| node.beat != beat)
        };
        let names: Vec<NodeName> = beats
            .iter()
            .filter(|(name, beat)| has_changed(name, *beat) && !self.is_quarantined(name))
            .map(|(name, _)| name.clone())
            .collect();
        if scope != RefreshScope::Changes {
            self.retain_members(&beats);
        }
        self.read_nodes(store, &names).await?;
        // Of this read only: after a failover the clock may be behind, and newer beats have smaller times.
        if let Some(newest) = beats.iter().map(|(_, beat)| *beat).max() {
            self.newest_beat = newest;
        }
        self.clock = Some((now, started));
        if scope != RefreshScope::Changes {
            self.members_read_at = Some(started);
        }
        if scope == RefreshScope::All {
            self.all_read_at = Some(started);
        }
        Ok(())
    }

    fn retain_members(&mut self, beats: &[(NodeName, RedisMillis)]) {
        let members: HashSet<&NodeName> = beats.iter().map(|(name, _)| name).collect();
        let removed: Vec<NodeName> =
            self.snapshot.nodes().map(|n| &n.name).filter(|name| !members.contains(name)).cloned().collect();
        removed.iter().for_each(|name| {
            self.snapshot.remove(name);
        });
        self.quarantined.retain(|name, _| members.contains(name));
    }

    fn upsert(&mut self, node: Node) {
        if self.quarantined.remove(&node.name).is_some() {
            tracing::info!(node = %node.name, "trying to place pods on this node again");
        }
        self.snapshot.upsert(node);
    }

    fn is_quarantined(&self, name: &NodeName) -> bool {
        self.quarantined.get(name).is_some_and(|since| since.elapsed() < QUARANTINE_TIME)
    }
}
