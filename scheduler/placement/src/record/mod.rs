//! A decision with the facts that it saw, as it is stored: [`decide`](crate::decide) makes the same one from
//! them.
//!
//! The facts are those of few nodes: the one that was chosen, the next ones, and one for each reason that
//! leaves out others. That is enough, because what a node's score needs of other nodes is stored, too:
//! see [`WholeCluster`].
//!
//! Stored with short names; a reader of another version takes unknown fields for defaults, and a form that it
//! does not know for none.
//!
//! Tests: tests::recorded

mod facts;

use std::collections::BTreeMap;
use std::time::Duration;

use model::RedisMillis;
use model::ids::NodeName;
use model::spec::PlacementProfile;
use serde::{Deserialize, Serialize};

use crate::batch::Observed;
use crate::placed::PlacedPods;
use crate::policy::{PlacementPolicy, Weights};
use crate::requirements::{PodRequest, Requirements};
use crate::snapshot::ClusterSnapshot;
use crate::whole::{WholeCluster, is_default};

use facts::StoredPod;
pub(crate) use facts::{LabelKeys, PodsOnNode, StoredNode};

/// Of what a reader must know.
const FORM: u32 = 1;
/// Of the JSON.
const MAX_BYTES: usize = 2_048;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    form: u32,
    /// When it was made, on Redis' clock.
    pub at: RedisMillis,
    /// Where the pod went.
    pub node: NodeName,
    pub node_count: u64,
    /// Nodes that could run it.
    pub fitting: u64,
    /// The others by reason: a node counts for each of its reasons.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    dead_after_ms: u64,
    /// If they are not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Weights>,
    pod: StoredPod,
    #[serde(default, skip_serializing_if = "is_default")]
    whole: WholeCluster,
    /// The first is `node`.
    nodes: Vec<StoredNode>,
}

impl DecisionRecord {
    pub(crate) fn new(
        seen: Observed,
        request: &PodRequest,
        requirements: &Requirements,
        node: &NodeName,
        policy: &PlacementPolicy,
        now: RedisMillis,
    ) -> Self {
        let Observed { node_count, fitting, refused, mut nodes, whole, is_counted } = seen;
        // Stable: the next ones stay in their order.
        nodes.sort_by_key(|facts| facts.name != *node);
        Self {
            form: FORM,
            at: now,
            node: node.clone(),
            node_count,
            fitting,
            refused,
            dead_after_ms: policy.dead_after.as_millis() as u64,
            weights: Some(policy.weights).filter(|weights| *weights != Weights::default()),
            pod: StoredPod::of(request, requirements, is_counted),
            whole,
            nodes,
        }
    }

    /// Leaves out nodes that do not fit into an entry, the least important first. `None` if even the chosen
    /// one does not.
    pub fn to_json(&self) -> Option<String> {
        let mut shortened = self.clone();
        loop {
            let json = serde_json::to_string(&shortened).ok()?;
            if json.len() <= MAX_BYTES {
                return Some(json);
            }
            shortened.nodes.pop().filter(|_| !shortened.nodes.is_empty())?;
        }
    }

    /// `None` if it is unreadable, or of a later form.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().filter(|record: &Self| record.form == FORM)
    }

    pub fn profile(&self) -> PlacementProfile {
        self.pod.profile
    }

    pub(crate) fn facts(&self) -> (ClusterSnapshot, PlacementPolicy, PodRequest) {
        let weights = self.weights.unwrap_or_default();
        let policy = PlacementPolicy { dead_after: Duration::from_millis(self.dead_after_ms), weights };
        let pod = self.pod.to_request();
        let mut snapshot = ClusterSnapshot::new(weights);
        for facts in &self.nodes {
            snapshot.upsert(facts.to_node());
            snapshot.set_last_use(&facts.name, facts.places.last_use);
        }
        let placed = |count: fn(&PodsOnNode) -> u64| {
            let counts = self.nodes.iter().map(|facts| (facts.name.clone(), count(&facts.places)));
            counts.filter(|(_, count)| *count > 0).collect()
        };
        let generation = pod.generation.clone().filter(|_| self.pod.is_counted);
        let service = pod.generation.as_ref().map(|generation| generation.service.clone());
        snapshot.set_placed(PlacedPods {
            generations: generation.into_iter().map(|of| (of, placed(|places| places.siblings))).collect(),
            services: service.into_iter().map(|of| (of, placed(|places| places.of_service))).collect(),
            ..PlacedPods::default()
        });
        snapshot.set_needs(self.whole.needs());
        snapshot.set_whole(self.whole.clone());
        (snapshot, policy, pod)
    }
}
