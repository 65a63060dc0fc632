//! The room on a node that the pods of the cluster could use.

use std::cell::RefCell;
use std::collections::HashMap;

use model::node::Resources;

use crate::score::LoadScore;

pub(super) const HUNDRED_POINTS: LoadScore = 100_000;
/// Some megabytes.
const MAX_KNOWN: usize = 100_000;

const MILLION: u128 = 1_000_000;
const SLOTS: usize = 0;
/// A power of the demand. `make bench ARGS=quality` is worse with 3, and with one resource alone.
const SCARCITY: u32 = 10;

/// Numbers of pods, processor, memory, processes, disk; see [`Resources::to_array`].
pub(super) type Amounts = [u64; 5];

/// The part of a pod's needs that is of one resource: some units that have enough free. Memory is one unit;
/// of GPUs each is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NeededUnits {
    /// 0 if the pod needs none.
    pub units: usize,
    pub each: u64,
}

impl NeededUnits {
    fn total(self) -> u128 {
        self.units as u128 * u128::from(self.each)
    }
}

/// The pods for which room is kept.
#[derive(Debug)]
pub struct Workload {
    /// The needs of a pod by resource, and the number of such pods.
    pods: Vec<(Vec<NeededUnits>, u64)>,
    count: u128,
    /// Of a node, by resource.
    average: Vec<u64>,
    /// Of a resource, in millionths: the scarcer, the more.
    value: Vec<u128>,
    /// Nodes in the same state are judged once.
    known: RefCell<HashMap<Amounts, LoadScore>>,
}

impl Workload {
    /// `average` is what a node of the cluster has of each resource; one of which it is 0 is only a
    /// condition.
    pub fn new(pods: Vec<(Vec<NeededUnits>, u64)>, average: Vec<u64>) -> Self {
        let count: u128 = pods.iter().map(|(_, count)| u128::from(*count)).sum();
        let demand = average.iter().enumerate().map(|(resource, average)| {
            let needed =
                pods.iter().map(|(needs, count)| needs[resource].total().saturating_mul((*count).into()));
            let needed = needed.fold(0, u128::saturating_add).saturating_mul(MILLION);
            needed.checked_div(count.saturating_mul((*average).into())).unwrap_or(0)
        });
        let demand: Vec<u128> = demand.collect();
        Self { pods, count, average, value: values(&demand), known: RefCell::default() }
    }

    /// Slots for pods are needed, and are worth nothing: they seldom are what is missing.
    pub(super) fn of_services(mut average: Amounts, needs: &[(Resources, u64)]) -> Self {
        average[SLOTS] = 0;
        let needed = |amount: u64| NeededUnits { units: usize::from(amount > 0), each: amount };
        let of_one = |(request, pods): &(Resources, u64)| {
            (Resources { pods: 1, ..*request }.to_array().map(needed).to_vec(), *pods)
        };
        Self::new(needs.iter().map(of_one).collect(), average.to_vec())
    }

    /// The room on a node that these pods could use, on average: 100 points if that is all of an average
    /// node. `free` has the units of each resource.
    ///
    /// Of a resource that a pod needs, it can use the units in which it fits, if it fits on the node.
    pub fn usable(&self, free: &[&[u64]]) -> LoadScore {
        let mut usable = vec![0u128; self.average.len()];
        for (needs, count) in self.pods.iter().filter(|(needs, _)| fits(needs, free)) {
            for ((usable, needed), units) in usable.iter_mut().zip(needs).zip(free) {
                let room: u128 = units_with_room(needed, units).map(u128::from).sum();
                *usable = usable.saturating_add(room.saturating_mul((*count).into()));
            }
        }
        let all: u128 = self.value.iter().sum();
        let points = |((usable, average), value): ((u128, &u64), &u128)| {
            let whole = self.count.saturating_mul((*average).into()).saturating_mul(all);
            let part = usable.saturating_mul(HUNDRED_POINTS.into()).saturating_mul(*value);
            part.checked_div(whole).unwrap_or(0)
        };
        let points: u128 = usable.into_iter().zip(&self.average).zip(&self.value).map(points).sum();
        points.try_into().unwrap_or(LoadScore::MAX)
    }

    pub(super) fn usable_amounts(&self, free: Amounts) -> LoadScore {
        if let Some(known) = self.known.borrow().get(&free) {
            return *known;
        }
        let usable = self.usable(&free.each_ref().map(std::slice::from_ref));
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(free, usable);
        usable
    }
}

/// From the parts of an average node that an average pod needs, in millionths. The next scarce resource
/// counts for much less than the first, or room that is not needed outweighs room that is.
fn values(demand: &[u128]) -> Vec<u128> {
    let most = demand.iter().copied().max().unwrap_or(0);
    let value = |of_one: &u128| {
        let part = of_one.saturating_mul(MILLION).checked_div(most).unwrap_or(0);
        (0..SCARCITY).fold(MILLION, |value, _| value * part / MILLION)
    };
    demand.iter().map(value).collect()
}

fn fits(needs: &[NeededUnits], free: &[&[u64]]) -> bool {
    needs.iter().zip(free).all(|(needed, units)| units_with_room(needed, units).count() >= needed.units)
}

/// None if nothing is needed.
fn units_with_room<'a>(needed: &'a NeededUnits, units: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    units.iter().copied().filter(|free| needed.units > 0 && *free >= needed.each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_usable_where_a_pod_fits() {
        let one = |each| NeededUnits { units: 1, each };
        let gpus = |units, each| NeededUnits { units, each };
        // An average pod needs half of the processor and a quarter of the GPUs of an average node: the GPUs
        // are worth a thousandth of the processor.
        let (needs, average) = ([one(2), gpus(1, 500)], vec![4, 2_000]);
        for (needs, cpu, gpu, expected, case) in [
            (needs, 4, &[1_000, 1_000][..], 99_999, "all of an average node"),
            (needs, 8, &[1_000, 1_000], 199_901, "more than an average node"),
            (needs, 1, &[1_000, 1_000], 0, "no processor is left for the GPUs"),
            (needs, 4, &[400, 1_000], 99_950, "one GPU has too little"),
            (needs, 4, &[499, 499], 0, "no GPU fits"),
            ([one(2), gpus(2, 1_000)], 4, &[1_000, 999], 0, "one GPU of two"),
            ([one(2), gpus(0, 0)], 4, &[1_000, 1_000], 100_000, "the GPUs are not needed"),
        ] {
            let workload = Workload::new(vec![(needs.to_vec(), 3)], average.clone());
            assert_eq!(workload.usable(&[&[cpu], gpu]), expected, "{case}");
        }
    }

    #[test]
    fn pods_count_by_their_number() {
        let of = |each, pods| (vec![NeededUnits { units: 1, each }], pods);
        let workload = Workload::new(vec![of(1, 3), of(8, 1)], vec![4]);
        assert_eq!((workload.usable(&[&[4]]), workload.usable(&[&[8]])), (75_000, 200_000));
        assert_eq!(Workload::new(Vec::new(), vec![4]).usable(&[&[4]]), 0, "no pods are known");
        assert_eq!(Workload::new(vec![of(1, 1)], vec![0]).usable(&[&[4]]), 0, "no node has it");
    }
}
