//! Where the pods of the services of a batch are. Schedulers read it before they decide, and keep it for
//! themselves.

use std::collections::{BTreeMap, HashMap};

use model::ids::{NodeName, ServiceName};

use crate::requirements::Generation;

/// Numbers of pods by node.
pub type PodsByNode = BTreeMap<NodeName, u64>;

/// Nodes with a pod or the data of an ordinal.
pub type OrdinalPlaces = BTreeMap<u32, NodeName>;

/// Those that are not here are not counted: their pods are placed by load alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacedPods {
    pub generations: HashMap<Generation, PodsByNode>,
    /// Pods of all generations, also those that are being stopped.
    pub services: HashMap<ServiceName, PodsByNode>,
    /// Those that are neither being stopped nor move, of services near which others run.
    pub staying: HashMap<ServiceName, PodsByNode>,
    /// Of stateful services.
    pub ordinals: HashMap<ServiceName, OrdinalPlaces>,
}

impl PlacedPods {
    pub fn add(&mut self, node: &NodeName, generation: &Generation) {
        for counts in self.of(generation) {
            *counts.entry(node.clone()).or_default() += 1;
        }
    }

    pub fn take_out(&mut self, node: &NodeName, generation: &Generation) {
        for count in self.of(generation).filter_map(|counts| counts.get_mut(node)) {
            *count = count.saturating_sub(1);
        }
    }

    fn of(&mut self, generation: &Generation) -> impl Iterator<Item = &mut PodsByNode> {
        let of_generation = self.generations.get_mut(generation);
        let of_service = self.services.get_mut(&generation.service).into_iter();
        of_generation.into_iter().chain(of_service).chain(self.staying.get_mut(&generation.service))
    }
}
