//! Changes of the cluster that can be planned.

use std::collections::BTreeMap;

use model::ids::{NodeName, ServiceName};
use model::node::Resources;
use model::spec::DesiredService;

#[derive(Debug, Clone)]
pub enum PlannedChange {
    Drain(NodeName),
    /// These nodes are dead at once.
    Lose(Vec<NodeName>),
    AddNodes(NewNodes),
    Scale(BTreeMap<ServiceName, u32>),
    Put(Box<DesiredService>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNodes {
    /// Without a number of pods or processes: those of the largest node.
    pub capacity: Resources,
    pub labels: BTreeMap<String, String>,
    pub count: u32,
}

/// A change that cannot be planned: its index, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidChange {
    pub index: usize,
    pub why: String,
}
