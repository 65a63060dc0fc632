//! The zone rule of stateful services: which zone an ordinal's pod goes to.
//!
//! The ordinals form blocks of as many as there are zones, and those of a block go to different zones: so the
//! lowest ones are always in as many zones as possible, whatever is scaled down. A block is a permutation of
//! the zones by itself: no list is stored, and no order of arrival can spoil another block.
//!
//! Ordinal i has the zone i mod z for its own, with the zones in the order of their numbers of nodes. If
//! another one of the block is there, it takes the zone that this one has left, or the first free one. Its
//! data, or a pod of it, is never moved.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::ids::NodeName;
use model::node::NodeKind;

use crate::candidate::Candidate;
use crate::filter::{EvalContext, is_domain};
use crate::requirements::{Generation, Ordinal, OrdinalZone, PodRequest, Requirements, ZoneChoice};
use crate::snapshot::{ClusterSnapshot, PlacementTarget};

/// Zones by ordinal.
type ZoneOf = BTreeMap<u32, String>;

/// `zones` are different. `taken` has the zones of ordinals with a pod on a node, or with data there. `None`
/// without zones.
fn choose<'z>(index: u32, zones: &'z [String], taken: &'z ZoneOf) -> Option<&'z str> {
    if let Some(zone) = taken.get(&index) {
        return Some(zone);
    }
    let count = u32::try_from(zones.len()).ok().filter(|count| *count > 0)?;
    let own_of = |index: u32| &zones[(index % count) as usize];
    let first = index - index % count;
    let others = || (first..first.saturating_add(count)).filter(|other| *other != index);
    let is_free = |zone: &&String| others().all(|other| taken.get(&other) != Some(*zone));
    let is_of_absent =
        |zone: &String| others().any(|other| !taken.contains_key(&other) && own_of(other) == zone);
    let free = || zones.iter().filter(is_free);
    let own = Some(own_of(index)).filter(is_free);
    let swapped = || free().find(|zone| !is_of_absent(zone));
    own.or_else(swapped).or_else(|| free().next()).map(String::as_str)
}

/// The ordinals of a generation's service, in a batch.
struct OrdinalZones {
    key: String,
    zones: Vec<String>,
    taken: ZoneOf,
}

impl OrdinalZones {
    fn new(
        snapshot: &ClusterSnapshot,
        ordinal: &Ordinal,
        generation: &Generation,
        requirements: &Requirements,
        context: &EvalContext,
    ) -> Self {
        let key = ordinal.rule.key().to_owned();
        let mut nodes_of: BTreeMap<&str, usize> = BTreeMap::new();
        let could_run = |candidate: &Candidate| {
            candidate.kind == NodeKind::Kubeleet && is_domain(candidate, requirements, context)
        };
        for (_, candidate, _) in snapshot.by_name().filter(|(_, candidate, _)| could_run(candidate)) {
            if let Some(zone) = candidate.domain(&key) {
                *nodes_of.entry(zone).or_default() += 1;
            }
        }
        let mut zones: Vec<(&str, usize)> = nodes_of.into_iter().collect();
        // Stable: zones with equally many nodes stay in the order of their names.
        zones.sort_by_key(|(_, nodes)| Reverse(*nodes));
        let zones = zones.into_iter().map(|(zone, _)| zone.to_owned()).collect();
        let places = snapshot.placed().ordinals.get(&generation.service).into_iter().flatten();
        let zone_of = |(index, node): (&u32, &NodeName)| {
            let (candidate, _) = snapshot.at(snapshot.index_of(node)?);
            Some((*index, candidate.domain(&key)?.to_owned()))
        };
        let taken = places.filter_map(zone_of).collect();
        Self { key, zones, taken }
    }

    /// `None` if it may go anywhere.
    fn zone_for(&self, ordinal: &Ordinal) -> Option<OrdinalZone> {
        let Ordinal { index, rule } = ordinal;
        let (zones, wanted) = (self.zones.len() as u64, rule.least_zones());
        let choice = match choose(*index, &self.zones, &self.taken) {
            _ if zones < wanted && !self.taken.contains_key(index) => ZoneChoice::TooFew { zones, wanted },
            zone => ZoneChoice::Zone(zone?.to_owned()),
        };
        Some(OrdinalZone { key: self.key.clone(), choice })
    }
}

/// The stateful services of a batch.
#[derive(Default)]
pub(crate) struct BatchOrdinals<'a>(HashMap<&'a Generation, OrdinalZones>);

impl<'a> BatchOrdinals<'a> {
    /// The requirements of the pod, with the zone of an ordinal.
    pub(crate) fn requirements(
        &mut self,
        pod: &'a PodRequest,
        snapshot: &ClusterSnapshot,
        context: &EvalContext,
    ) -> Cow<'a, Requirements> {
        let requirements = &pod.requirements;
        let Some((ordinal, generation)) = ordinal_of(pod).filter(|_| !has_data(requirements)) else {
            return Cow::Borrowed(requirements);
        };
        let new = || OrdinalZones::new(snapshot, ordinal, generation, requirements, context);
        let zone = self.0.entry(generation).or_insert_with(new).zone_for(ordinal);
        Cow::Owned(Requirements { zone: zone.map(Arc::new), ..requirements.clone() })
    }

    /// The next ones of its block go elsewhere.
    pub(crate) fn note(&mut self, pod: &PodRequest, target: &PlacementTarget, snapshot: &ClusterSnapshot) {
        let Some((ordinal, generation)) = ordinal_of(pod) else { return };
        let Some(index) = snapshot.index_of(&target.name) else { return };
        let (candidate, _) = snapshot.at(index);
        let of_service = self.0.iter_mut().filter(|(other, _)| other.service == generation.service);
        for (_, ordinals) in of_service {
            let zone = candidate.domain(&ordinals.key).map(str::to_owned);
            ordinals.taken.extend(zone.map(|zone| (ordinal.index, zone)));
        }
    }
}

fn ordinal_of(pod: &PodRequest) -> Option<(&Ordinal, &Generation)> {
    pod.ordinal.as_ref().zip(pod.generation.as_ref())
}

/// Then it goes there, whatever zone that is by now.
fn has_data(requirements: &Requirements) -> bool {
    requirements.volumes.as_ref().is_some_and(|volumes| !volumes.bound.is_empty())
}

#[cfg(test)]
mod tests;
