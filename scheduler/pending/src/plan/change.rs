//! Changes of the cluster that can be planned.

use std::collections::BTreeMap;
use std::time::Duration;

use model::ids::{NodeName, PodId, ServiceName};
use model::node::{Psi, Resources};
use model::service::selector::LabelSelector;
use model::spec::DesiredService;

#[derive(Debug, Clone)]
pub enum PlannedChange {
    Drain(NodeName),
    /// These nodes are dead at once.
    Lose(Vec<NodeName>),
    LoseSelected(NodeSelection),
    AddNodes(NewNodes),
    Scale(BTreeMap<ServiceName, u32>),
    Put(Box<DesiredService>),
    Rebalance {
        max_moves: usize,
    },
    Relieve(Relief),
}

/// The first of these pods that is better off on another node leaves its own.
#[derive(Debug, Clone)]
pub struct Relief {
    pub kind: PressureKind,
    pub pods: Vec<PodId>,
    /// Younger pods stay.
    pub min_age: Duration,
}

/// Tasks that waited for this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureKind {
    Cpu,
    Memory,
    Io,
}

impl PressureKind {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Io];
    /// In percent; three steps of what a scheduler counts.
    pub const MUCH: f32 = 15.0;

    pub fn of(self, psi: &Psi) -> f32 {
        match self {
            Self::Cpu => psi.cpu_some,
            Self::Memory => psi.memory_some,
            Self::Io => psi.io_some,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Io => "IO",
        }
    }
}

/// The node with this name, or if there is none the live nodes with these labels.
#[derive(Debug, Clone)]
pub struct NodeSelection {
    pub text: String,
    pub selector: LabelSelector,
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
