//! The nodes as this scheduler sees them: a copy of what Redis holds, kept fresh by reading what changed.
//!
//! The copy is never the truth. A decision made on an old one is refused by the script that assigns, and then the
//! nodes concerned are read again.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use common::RedisMillis;
use common::ids::NodeName;
use common::node::Node;
use common::store::{Store, StoreError};

use crate::decide::{Snapshot, Weights};

/// Nodes that are gone are noticed within this.
const MEMBERS: Duration = Duration::from_secs(2);
/// Beats are asked for from a little before the newest one known: what costs little can not miss any.
const OVERLAP: RedisMillis = 1_000;
/// A node whose keys are broken gets nothing for so long, then it is tried again.
const SET_ASIDE: Duration = Duration::from_secs(10);

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Nodes that beat since the last time.
    Changes,
    /// Those, and which nodes there are.
    Members,
    /// Every node.
    All,
}

/// A snapshot, and how old it is.
pub(crate) struct View {
    snapshot: Snapshot,
    newest_beat: RedisMillis,
    /// Redis' clock, and when we read it.
    clock: Option<(RedisMillis, Instant)>,
    members_at: Option<Instant>,
    all_at: Option<Instant>,
    aside: HashMap<NodeName, Instant>,
}

impl View {
    pub(crate) fn new(weights: Weights) -> Self {
        Self {
            snapshot: Snapshot::new(weights),
            newest_beat: 0,
            clock: None,
            members_at: None,
            all_at: None,
            aside: HashMap::new(),
        }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Counts an accepted assignment until the node is read again.
    pub(crate) fn commit(&mut self, name: &NodeName, request: common::node::Resources) {
        self.snapshot.commit(name, request);
    }

    /// Redis' time: as it was read last, and what has passed since on our own monotonic clock.
    pub(crate) fn now(&self) -> RedisMillis {
        self.clock.map_or(0, |(read, at)| read + at.elapsed().as_millis() as RedisMillis)
    }

    /// Reads what changed, if the view is older than `old`.
    pub(crate) async fn freshen(&mut self, store: &Store, old: Duration) -> Result<(), StoreError> {
        if self.clock.is_some_and(|(_, at)| at.elapsed() < old) {
            return Ok(());
        }
        let members = self.members_at.is_none_or(|at| at.elapsed() >= MEMBERS);
        self.read(store, if members { Depth::Members } else { Depth::Changes }).await
    }

    /// How long ago every node was read.
    pub(crate) fn all_read_ago(&self) -> Option<Duration> {
        self.all_at.map(|at| at.elapsed())
    }

    /// Reads every node, unless that was begun after `moment`.
    pub(crate) async fn read_all_after(&mut self, store: &Store, moment: Instant) -> Result<(), StoreError> {
        if self.all_at.is_some_and(|at| at >= moment) {
            return Ok(());
        }
        self.read(store, Depth::All).await
    }

    /// Reads these nodes.
    pub(crate) async fn read_nodes(&mut self, store: &Store, names: &[NodeName]) -> Result<(), StoreError> {
        let (nodes, unreadable) = store.nodes_each(names).await?;
        let found: HashSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
        names.iter().filter(|name| !found.contains(name)).for_each(|name| {
            self.snapshot.remove(name);
        });
        nodes.into_iter().for_each(|node| self.put(node));
        for (name, error) in unreadable {
            self.set_aside(&name, &error);
        }
        Ok(())
    }

    /// Gives a node nothing for a while, because its keys are broken.
    pub(crate) fn set_aside(&mut self, name: &NodeName, error: &StoreError) {
        self.snapshot.remove(name);
        if self.aside.insert(name.clone(), Instant::now()).is_none() {
            tracing::error!(node = %name, "nothing is placed on this node: {error}");
        }
    }

    async fn read(&mut self, store: &Store, depth: Depth) -> Result<(), StoreError> {
        let begun = Instant::now();
        let since = match depth {
            Depth::Changes => self.newest_beat.saturating_sub(OVERLAP),
            Depth::Members | Depth::All => 0,
        };
        let (now, beats) = tokio::try_join!(store.redis_now(), store.beats_since(since))?;
        let changed = |name: &NodeName, beat: RedisMillis| {
            depth == Depth::All || self.snapshot.get(name).is_none_or(|node| node.beat != beat)
        };
        let names: Vec<NodeName> = beats
            .iter()
            .filter(|(name, beat)| changed(name, *beat) && !self.is_aside(name))
            .map(|(name, _)| name.clone())
            .collect();
        if depth != Depth::Changes {
            self.keep_only(&beats);
        }
        self.read_nodes(store, &names).await?;
        // Not the greatest ever: after a failover Redis' clock can be behind, and then newer beats are smaller.
        if let Some(newest) = beats.iter().map(|(_, beat)| *beat).max() {
            self.newest_beat = newest;
        }
        self.clock = Some((now, begun));
        if depth != Depth::Changes {
            self.members_at = Some(begun);
        }
        if depth == Depth::All {
            self.all_at = Some(begun);
        }
        Ok(())
    }

    fn keep_only(&mut self, beats: &[(NodeName, RedisMillis)]) {
        let members: HashSet<&NodeName> = beats.iter().map(|(name, _)| name).collect();
        let gone: Vec<NodeName> =
            self.snapshot.nodes().map(|n| &n.name).filter(|name| !members.contains(name)).cloned().collect();
        gone.iter().for_each(|name| {
            self.snapshot.remove(name);
        });
        self.aside.retain(|name, _| members.contains(name));
    }

    fn put(&mut self, node: Node) {
        if self.aside.remove(&node.name).is_some() {
            tracing::info!(node = %node.name, "this node is tried again");
        }
        self.snapshot.upsert(node);
    }

    fn is_aside(&self, name: &NodeName) -> bool {
        self.aside.get(name).is_some_and(|since| since.elapsed() < SET_ASIDE)
    }
}
