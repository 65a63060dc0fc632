//! This scheduler's copy of the nodes. It may be outdated: the script refuses invalid decisions, and those
//! nodes are read again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use model::RedisMillis;
use model::ids::{NodeName, PodId};
use model::node::{Node, NodeState, Resources};
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
    /// Pods for which room is kept, with their nodes. The snapshot counts it as used.
    nominations: BTreeMap<PodId, NodeName>,
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
            nominations: BTreeMap::new(),
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
        if let Some((node, room)) = self.kept_for(&pod.id).filter(|(node, _)| *node == assignment.node) {
            self.snapshot.release(&node, room);
            self.nominations.remove(&pod.id);
        }
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

    /// Usually there are none.
    pub(crate) fn nominations(&self) -> &BTreeMap<PodId, NodeName> {
        &self.nominations
    }

    /// The room that is kept for pods is free while `decide` runs for them.
    pub(crate) fn with_room_of<T>(
        &mut self,
        pods: impl Iterator<Item = PodId>,
        decide: impl FnOnce(&Self) -> T,
    ) -> T {
        let kept: Vec<(NodeName, Resources)> = pods.filter_map(|pod| self.kept_for(&pod)).collect();
        kept.iter().for_each(|(node, room)| self.snapshot.release(node, *room));
        let decided = decide(self);
        for (node, room) in &kept {
            self.snapshot.commit(node, *room);
        }
        decided
    }

    fn kept_for(&self, pod: &PodId) -> Option<(NodeName, Resources)> {
        let node = self.snapshot.get(self.nominations.get(pod)?)?;
        Some((node.name.clone(), node.nomination.as_ref()?.request))
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
                Ok(None) => self.remove(name),
                Err(error) => self.quarantine(name, &error),
            }
        }
        Ok(())
    }

    pub(crate) fn quarantine(&mut self, name: &NodeName, error: &StoreError) {
        self.remove(name);
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
        // Nodes may keep room until some time.
        self.clock.get_or_insert((now, started));
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
        removed.iter().for_each(|name| self.remove(name));
        self.quarantined.retain(|name, _| members.contains(name));
    }

    fn upsert(&mut self, mut node: Node) {
        if self.quarantined.remove(&node.name).is_some() {
            tracing::info!(node = %node.name, "trying to place pods on this node again");
        }
        self.nominations.retain(|_, of| *of != node.name);
        // Otherwise it gets no pod anyway, and the one that is nominated may have room elsewhere.
        let gets_pods = node.state == NodeState::Alive && !node.cordoned;
        if let Some(pod) = node.keep_room(self.now()).filter(|_| gets_pods) {
            self.nominations.insert(pod, node.name.clone());
        }
        self.snapshot.upsert(node);
    }

    fn remove(&mut self, name: &NodeName) {
        self.nominations.retain(|_, of| of != name);
        self.snapshot.remove(name);
    }

    fn is_quarantined(&self, name: &NodeName) -> bool {
        self.quarantined.get(name).is_some_and(|since| since.elapsed() < QUARANTINE_TIME)
    }
}
