#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use model::ids::{NodeName, VolumeName};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{NOW, NodeBuilder, generation, node, pod};
use crate::{
    BoundVolume, OrdinalPlaces, Outcome, PlacedPods, PlacementPolicy, Reason, VolumePlaces, decide, explain,
    suggest,
};

fn zones(names: &str) -> Vec<String> {
    names.chars().map(String::from).collect()
}

fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let beginning_with = |index: usize| {
        let mut rest = items.to_vec();
        let first = rest.remove(index);
        permutations(&rest).into_iter().map(move |others| [vec![first.clone()], others].concat())
    };
    (0..items.len()).flat_map(beginning_with).collect()
}

fn arrive(order: &[u32], zones: &[String], taken: &mut ZoneOf) {
    for index in order {
        let zone = choose(*index, zones, taken).unwrap().to_owned();
        taken.insert(*index, zone);
    }
}

fn zones_of_first(count: u32, taken: &ZoneOf) -> usize {
    taken.range(..count).map(|(_, zone)| zone).collect::<BTreeSet<_>>().len()
}

#[test]
fn six_in_three_zones_become_three_in_three_zones_in_every_order_of_arrival() {
    let orders = permutations(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(orders.len(), 720);
    for order in orders {
        let mut taken = ZoneOf::new();
        arrive(&order, &zones("abc"), &mut taken);
        assert_eq!(zones_of_first(3, &taken), 3, "{order:?}: {taken:?}");
        taken.retain(|index, _| *index < 3);
        arrive(&[5, 3, 4], &zones("abc"), &mut taken);
        assert_eq!(taken.range(3..).map(|(_, zone)| zone).collect::<BTreeSet<_>>().len(), 3, "{order:?}");
    }
}

/// A spread takes the first zone with the fewest pods.
#[test]
fn with_spread_alone_some_orders_of_arrival_leave_three_in_fewer_zones() {
    let fewest = |taken: &ZoneOf| {
        let pods = |zone: &String| taken.values().filter(|other| *other == zone).count();
        zones("abc").into_iter().min_by_key(pods).unwrap()
    };
    let spread = |order: &[u32]| {
        let mut taken = ZoneOf::new();
        for index in order {
            let zone = fewest(&taken);
            taken.insert(*index, zone);
        }
        taken
    };
    assert_eq!(zones_of_first(3, &spread(&[0, 1, 3, 2, 4, 5])), 2);
    let orders = permutations(&[0, 1, 2, 3, 4, 5]);
    let failed = orders.iter().filter(|order| zones_of_first(3, &spread(order)) < 3);
    assert_eq!(failed.count(), 432);
}

#[test]
fn four_become_one_and_four_again_where_their_data_is() {
    for (order, again) in permutations(&[0, 1, 2, 3]).iter().zip(permutations(&[3, 2, 1])) {
        let mut taken = ZoneOf::new();
        arrive(order, &zones("abc"), &mut taken);
        let with_data = taken.clone();
        arrive(&again, &zones("cab"), &mut taken);
        assert_eq!(taken, with_data, "{order:?}: data is where it was, whatever zone is first by now");
        // Without data they are placed anew.
        taken.retain(|index, _| *index < 1);
        arrive(&again, &zones("cab"), &mut taken);
        assert_eq!(zones_of_first(3, &taken), 3, "{order:?}");
    }
}

#[test]
fn an_ordinal_takes_its_own_zone_or_the_one_that_another_has_left() {
    for (index, names, taken, expected, case) in [
        (0, "abc", &[][..], Some("a"), "its own"),
        (4, "abc", &[(0, "b"), (1, "c")], Some("b"), "other blocks do not count"),
        (2, "abc", &[(1, "c")], Some("b"), "the one that the other has left"),
        (2, "abc", &[(0, "c")], Some("a"), "also if that is before"),
        (0, "abcd", &[(1, "a")], Some("b"), "and not the own one of an absent one"),
        (0, "abc", &[(1, "a"), (2, "b")], Some("c"), "the only free one"),
        (1, "abc", &[(1, "d"), (0, "b")], Some("d"), "where it is"),
        (1, "abc", &[(0, "a"), (2, "a")], Some("b"), "two of a block are in one zone after a label changed"),
        (7, "a", &[(6, "a")], Some("a"), "there is only one"),
        (7, "", &[], None, "there is none"),
        (u32::MAX, "abc", &[], Some("a"), "the last number"),
    ] {
        let taken = taken.iter().map(|(index, zone)| (*index, (*zone).to_owned())).collect();
        assert_eq!(choose(index, &zones(names), &taken), expected, "{case}");
    }
}

#[derive(Debug, Clone)]
enum Change {
    Scale(u32),
    Arrive(prop::sample::Index),
    Die(prop::sample::Index),
    /// The zones have other numbers of nodes.
    Reorder(Vec<String>),
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => (0..14u32).prop_map(Change::Scale),
        6 => any::<prop::sample::Index>().prop_map(Change::Arrive),
        2 => any::<prop::sample::Index>().prop_map(Change::Die),
        1 => Just(zones("abcd")).prop_shuffle().prop_map(Change::Reorder),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_lowest_are_spread_evenly_after_any_history_and_no_data_moves(
        count in 1..=4usize,
        has_data: bool,
        changes in prop::collection::vec(any_change(), 0..60),
    ) {
        let (mut replicas, mut order) = (6, zones("abcd"));
        // With data, `taken` also has those that are gone.
        let (mut present, mut taken) = (BTreeSet::new(), ZoneOf::new());
        order.truncate(count);
        for change in changes {
            match change {
                Change::Scale(to) => {
                    replicas = to;
                    present.retain(|index| *index < replicas);
                }
                Change::Arrive(one) => {
                    let missing: Vec<u32> = (0..replicas).filter(|index| !present.contains(index)).collect();
                    if !missing.is_empty() {
                        let index = missing[one.index(missing.len())];
                        let before = taken.get(&index).cloned();
                        let zone = choose(index, &order, &taken).unwrap().to_owned();
                        prop_assert!(before.is_none_or(|before| before == zone));
                        present.insert(index);
                        taken.insert(index, zone);
                    }
                }
                Change::Die(one) if !present.is_empty() => {
                    let all: Vec<u32> = present.iter().copied().collect();
                    present.remove(&all[one.index(all.len())]);
                }
                Change::Die(_) => {}
                Change::Reorder(other) => {
                    order = other.into_iter().filter(|zone| zones("abcd")[..count].contains(zone)).collect();
                }
            }
            if !has_data {
                taken.retain(|index, _| present.contains(index));
            }
            let whole = (0..).take_while(|index| taken.contains_key(index)).count() as u32;
            for first in 0..=whole {
                let pods = |zone: &String| taken.range(..first).filter(|(_, other)| *other == zone).count();
                let counts: Vec<usize> = order.iter().map(pods).collect();
                prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{taken:?}");
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The batch counts its own placements as a look at Redis would.
    #[test]
    fn a_batch_of_ordinals_equals_them_placed_one_by_one(
        order in Just((0..8u32).collect::<Vec<_>>()).prop_shuffle(),
        nodes in prop::collection::vec(prop::sample::select(vec!["", "a", "b", "c"]), 1..7),
    ) {
        let nodes: Vec<NodeBuilder> =
            nodes.iter().enumerate().map(|(i, zone)| in_zone(&format!("n{i}"), zone)).collect();
        let pods: Vec<PodRequest> = order.iter().map(|index| ordinal(*index, json!(true))).collect();
        let in_one = place(&nodes, OrdinalPlaces::new(), &pods);
        let mut places = OrdinalPlaces::new();
        for (pod, placed) in pods.iter().zip(in_one) {
            let alone = place(&nodes, places.clone(), std::slice::from_ref(pod)).remove(0);
            let zone = |name: &Option<String>| {
                let node = nodes.iter().find(|node| Some((*node).clone().build().name.as_str()) == name.as_deref());
                node.map(|node| node.clone().build().zone().to_owned())
            };
            prop_assert_eq!(zone(&alone), zone(&placed));
            places.extend(placed.map(|name| (pod.ordinal.as_ref().unwrap().index, NodeName::new(name).unwrap())));
        }
    }
}

fn in_zone(name: &str, zone: &str) -> NodeBuilder {
    let labels = (!zone.is_empty()).then(|| ("zone".to_owned(), zone.to_owned()));
    node(name).with(|n| n.facts.labels = labels.into_iter().collect())
}

fn ordinal(index: u32, stateful: serde_json::Value) -> PodRequest {
    let rule = Arc::new(serde_json::from_value(stateful).unwrap());
    let mut pod = pod(index as usize, 0, 0);
    pod.requirements.needs_newest_form = true;
    PodRequest { generation: Some(generation("db", "spec")), ordinal: Some(Ordinal { index, rule }), ..pod }
}

fn snapshot(nodes: &[NodeBuilder], places: OrdinalPlaces) -> ClusterSnapshot {
    let mut snapshot = ClusterSnapshot::new(PlacementPolicy::default().weights);
    nodes.iter().for_each(|node| snapshot.upsert(node.clone().build()));
    let ordinals = HashMap::from([(generation("db", "spec").service, places)]);
    snapshot.set_placed(PlacedPods { ordinals, ..PlacedPods::default() });
    snapshot
}

fn place(nodes: &[NodeBuilder], places: OrdinalPlaces, pods: &[PodRequest]) -> Vec<Option<String>> {
    let decisions = decide(&snapshot(nodes, places), NOW, &PlacementPolicy::default(), pods);
    let node_of = |outcome| match outcome {
        Outcome::Place(target) => Some(target.name.to_string()),
        Outcome::Unschedulable { .. } => None,
    };
    decisions.into_iter().map(|decision| node_of(decision.outcome)).collect()
}

fn places(known: &[(u32, &str)]) -> OrdinalPlaces {
    known.iter().map(|(index, node)| (*index, NodeName::new(*node).unwrap())).collect()
}

#[test]
fn ordinals_go_to_the_zones_in_turn_the_one_with_the_most_nodes_first() {
    let nodes = [in_zone("n1", "a"), in_zone("n2", "b"), in_zone("n3", "b"), in_zone("n4", "")];
    let pods: Vec<PodRequest> = (0..4).map(|index| ordinal(index, json!(true))).collect();
    let expected = ["n2", "n1", "n3", "n1"].map(|name| Some(name.to_owned()));
    assert_eq!(place(&nodes, OrdinalPlaces::new(), &pods), expected);
    let full = in_zone("n1", "a").pods(110, 110);
    assert_eq!(place(&[full, in_zone("n2", "b")], places(&[(0, "n2")]), &pods[1..2]), [None], "it waits");
    let by_name = ordinal(1, json!({"by": "node.hostname"}));
    assert_eq!(place(&nodes, places(&[(0, "n1")]), &[by_name]), [Some("n2".to_owned())]);
}

#[test]
fn zones_without_a_node_that_could_run_the_pods_are_none() {
    let cordoned = in_zone("n1", "a").with(|n| n.cordoned = true);
    let nodes = [cordoned, in_zone("n2", "b"), in_zone("n3", "c")];
    let pods: Vec<PodRequest> = (0..3).map(|index| ordinal(index, json!(true))).collect();
    let expected = ["n2", "n3", "n2"].map(|name| Some(name.to_owned()));
    assert_eq!(place(&nodes, OrdinalPlaces::new(), &pods), expected);
    let waiting = ordinal(0, json!({"zones": 3}));
    assert_eq!(place(&nodes, OrdinalPlaces::new(), std::slice::from_ref(&waiting)), [None]);
    let whole = [in_zone("n1", "a"), nodes[1].clone(), nodes[2].clone()];
    assert_eq!(place(&whole, OrdinalPlaces::new(), &[waiting]), [Some("n1".to_owned())]);
    let without = [in_zone("n1", ""), in_zone("n2", "")];
    assert_eq!(place(&without, OrdinalPlaces::new(), &pods).iter().flatten().count(), 3, "the rule is off");
}

#[test]
fn data_decides_before_the_zones_do() {
    let nodes = [in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b")];
    let with_data = |index, node: &str| {
        let mut pod = ordinal(index, json!({"zones": 3}));
        let name = VolumeName::new(format!("db_data_{index}")).unwrap();
        let node = NodeName::new(node).unwrap();
        let bound = vec![BoundVolume { name, node, engine_id: None, is_removing: false }];
        pod.requirements.volumes = VolumePlaces { bound, ..VolumePlaces::default() }.into_requirement();
        pod
    };
    let known = places(&[(0, "n1"), (1, "n2")]);
    assert_eq!(place(&nodes, known, &[with_data(1, "n2")]), [Some("n2".to_owned())]);
    let known = places(&[(1, "n1")]);
    let next = ordinal(0, json!(true));
    assert_eq!(place(&nodes, known, &[next]), [Some("n3".to_owned())], "its zone has the data of another");
}

#[test]
fn each_node_says_why_it_is_not_the_ordinals() {
    let nodes = [in_zone("n1", "a"), in_zone("n2", "b"), in_zone("n3", "")];
    let refusals = |pod: &PodRequest, places| {
        let evaluations = explain(&snapshot(&nodes, places), NOW, &PlacementPolicy::default(), pod);
        let each = evaluations
            .into_iter()
            .flat_map(|one| one.refusals.into_iter().map(move |why| (one.node.clone(), why)));
        each.map(|(node, why)| format!("{node} {}: {}", why.reason, why.detail)).collect::<Vec<_>>()
    };
    assert_eq!(
        refusals(&ordinal(1, json!(true)), OrdinalPlaces::new()),
        [
            "n1 OtherZone: has zone=a, but its ordinal goes to zone=b",
            "n3 NoZone: has no label zone, by which the service is stateful"
        ]
    );
    let too_few = refusals(&ordinal(1, json!({"zones": 3})), OrdinalPlaces::new());
    let expected = "n1 NoZone: the service waits for 3 values of zone, and nodes that could run it have 2";
    assert!(too_few.len() == 3 && too_few[0] == expected, "{too_few:?}");
    let running = refusals(&ordinal(1, json!(true)), places(&[(1, "n1")]));
    assert_eq!(
        running[0], "n2 OtherZone: has zone=b, but its ordinal goes to zone=a",
        "a pod stays in its zone"
    );
    assert_eq!(Reason::NO_ZONE.as_str(), "NoZone");
}

#[test]
fn a_node_without_a_label_may_get_the_zone_that_is_needed() {
    let nodes = [in_zone("n1", "a"), in_zone("n2", "b").pods(110, 110), in_zone("n3", "")];
    let snapshot = snapshot(&nodes, places(&[(0, "n1")]));
    let change = suggest(&snapshot, NOW, &PlacementPolicy::default(), &ordinal(1, json!(true)));
    assert_eq!(change.unwrap(), "`kubeleet node label n3 zone=b` lets it run there");
}
