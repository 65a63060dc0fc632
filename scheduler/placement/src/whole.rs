//! The measures of a whole cluster by which its nodes are compared. A snapshot of few of its nodes, such as
//! those of a stored decision, has them from the decision.
//!
//! Tests: tests::recorded

use std::collections::BTreeMap;

use model::node::Resources;
use serde::{Deserialize, Serialize};

use crate::profile::ClusterMeasures;
use crate::score::LoadScore;

/// As one pod saw it: the counts are of its generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WholeCluster {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) typical_pressure: LoadScore,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) has_zones: bool,
    /// Pods, in the zones of the nodes that are there.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) by_zone: BTreeMap<String, u64>,
    /// For each rule of `spread`.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) spreads: Vec<WholeSpread>,
    /// For each relation to a service.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) relations: Vec<WholeRelation>,
    /// Only with another profile than `default`.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) measures: ClusterMeasures,
    /// Only for `fragmentation`, with requests as [`Resources::to_array`].
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) needs: Vec<([u64; 5], u64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WholeSpread {
    /// Of the domain with the fewest pods; 0 if there are too few domains.
    pub(crate) least: u64,
    /// This domain.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) fewest: Option<String>,
    /// By domain, of the nodes that are there.
    pub(crate) pods: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WholeRelation {
    /// The other service has pods, wherever they are.
    pub(crate) is_somewhere: bool,
    /// By domain, of the nodes that are there.
    pub(crate) pods: BTreeMap<String, u64>,
}

impl WholeCluster {
    pub(crate) fn needs(&self) -> Vec<(Resources, u64)> {
        self.needs.iter().map(|(request, pods)| (Resources::from_array(*request), *pods)).collect()
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
