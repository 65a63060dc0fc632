//! Pods are near to those of other services, or away from them.

use super::*;

fn relation(service: &str, key: &str, kind: RelationKind, hard: bool) -> Relation {
    let service = ServiceName::new(service).unwrap();
    Relation { service, key: key.to_owned(), kind, hard, weight: 50, is_of_other: false }
}

/// Of a service with these relations, to which others have some, too.
fn related(index: usize, service: &str, relations: &[Relation]) -> PodRequest {
    let mut pod = PodRequest { generation: Some(generation(service, "1")), ..pod(index, 0, 0) };
    pod.requirements.rules = NodeRules::with_relations(&Placement::default(), relations.to_vec(), true);
    pod
}

fn nodes() -> Vec<Node> {
    [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "")]
        .map(|(name, zone)| {
            let labelled = |node: &mut Node| {
                node.facts.labels.extend((!zone.is_empty()).then(|| ("zone".to_owned(), zone.to_owned())));
            };
            node(name).with(labelled).build()
        })
        .to_vec()
}

fn placed(all: &[(&str, &str, u64)]) -> PlacedPods {
    let mut placed = PlacedPods::default();
    for (service, node, pods) in all {
        let (service, node) = (ServiceName::new(*service).unwrap(), NodeName::new(*node).unwrap());
        for counts in [&mut placed.services, &mut placed.staying] {
            counts.entry(service.clone()).or_default().insert(node.clone(), *pods);
        }
    }
    placed
}

#[test]
fn each_node_says_which_service_it_is_too_close_to_or_too_far_from() {
    use RelationKind::{Apart, Near};
    let db_on_a1 = placed(&[("db", "a1", 2)]);
    let of_other = |rule: Relation| Relation { is_of_other: true, ..rule };
    for (rule, expected, change) in [
        (
            relation("db", "node.hostname", Apart, true),
            &["a1: AntiAffinity has 2 pods of db, away from which the service runs"][..],
            None,
        ),
        (
            of_other(relation("db", "zone", Apart, true)),
            &[
                "a1: AntiAffinity zone=a has 2 pods of db, which runs away from the service",
                "a2: AntiAffinity zone=a has 2 pods of db, which runs away from the service",
            ],
            None,
        ),
        (
            relation("db", "zone", Near, true),
            &[
                "b1: Affinity zone=b has no pod of db, near which the service runs",
                "c1: Affinity has no label zone, by which the service runs near db",
            ],
            None,
        ),
        (
            relation("web", "rack", Near, true),
            &[
                "a1: Affinity has no label rack, by which the service runs near web",
                "a2: Affinity has no label rack, by which the service runs near web",
                "b1: Affinity has no label rack, by which the service runs near web",
                "c1: Affinity has no label rack, by which the service runs near web",
            ],
            Some("`hard: false` of the affinity to web lets it run on a1"),
        ),
        (
            relation("web", "node.hostname", Near, true),
            &[
                "a1: Affinity the service runs near web, which has no pods",
                "a2: Affinity the service runs near web, which has no pods",
                "b1: Affinity the service runs near web, which has no pods",
                "c1: Affinity the service runs near web, which has no pods",
            ],
            Some("`hard: false` of the affinity to web lets it run on a1"),
        ),
        (relation("own", "node.hostname", Near, true), &[], None),
    ] {
        let mut snapshot = snapshot(&nodes());
        snapshot.set_placed(db_on_a1.clone());
        let pod = related(0, "own", std::slice::from_ref(&rule));
        let mut told = Vec::new();
        for judged in explain(&snapshot, NOW, &PlacementPolicy::default(), &pod) {
            let refusals = judged.refusals.iter();
            told.extend(refusals.map(|one| format!("{}: {} {}", judged.node, one.reason, one.detail)));
        }
        told.sort();
        assert_eq!(told, expected, "{rule:?}");
        let suggested = suggest(&snapshot, NOW, &PlacementPolicy::default(), &pod);
        assert_eq!(suggested.as_deref(), change, "{rule:?}");
    }
}

#[test]
fn another_node_helps_where_every_one_has_a_pod_to_keep_away_from() {
    let mut snapshot = snapshot(&nodes()[..1]);
    snapshot.set_placed(placed(&[("db", "a1", 1)]));
    for (key, expected) in [
        ("node.hostname", "`hard: false` of the anti-affinity to db lets it run on a1"),
        ("zone", "`hard: false` of the anti-affinity to db lets it run on a1"),
    ] {
        let rules = [relation("db", key, RelationKind::Apart, true)];
        let pod = related(0, "own", &rules);
        let change = suggest(&snapshot, NOW, &PlacementPolicy::default(), &pod);
        assert_eq!(change.as_deref(), Some(expected));
    }
    let both = [
        relation("db", "node.hostname", RelationKind::Apart, true),
        relation("db", "node.hostname", RelationKind::Apart, true),
    ];
    let change = suggest(&snapshot, NOW, &PlacementPolicy::default(), &related(0, "own", &both));
    let expected = "another node like a1 lets it run, for nothing else is missing than room";
    assert_eq!(change.as_deref(), Some(expected));
}

#[test]
fn pods_of_one_batch_count_for_each_other_in_any_order() {
    use RelationKind::{Apart, Near};
    let apart = |of: &str, is_of_other| Relation { is_of_other, ..relation(of, "zone", Apart, true) };
    let (db, web) = ([apart("web", false)], [apart("db", true)]);
    let near = [relation("cache", "node.hostname", Near, false)];
    for (pods, expected) in [
        // Zone b is the only other one with the label, and c1 is in no zone.
        (vec![related(0, "db", &db), related(1, "web", &web), related(2, "db", &db)], ["a1", "b1", "a2"]),
        (vec![related(0, "web", &web), related(1, "db", &db), related(2, "web", &web)], ["a1", "b1", "a2"]),
        (vec![related(0, "cache", &[]), related(1, "web", &near), related(2, "web", &near)], ["a1"; 3]),
    ] {
        let placed: Vec<_> = place(&nodes(), &pods).into_iter().flatten().collect();
        assert_eq!(placed.iter().map(NodeName::as_str).collect::<Vec<_>>(), expected);
    }
}

/// Pods come and go, and several schedulers place them: `held` are the pods of each service by node.
fn churn(steps: &[(u8, u8, bool)], rules: &[Relation]) -> Result<(), TestCaseError> {
    let nodes = nodes();
    let services = ["db", "web", "cache"];
    let names = services.map(|name| ServiceName::new(name).unwrap());
    let of_service = |service: usize| -> Vec<Relation> {
        let own = rules.iter().filter(|rule| rule.service != names[service]);
        if service == 0 {
            return own.cloned().collect();
        }
        let concerned = rules.iter().filter(|rule| rule.service == names[service]);
        concerned.filter_map(|rule| rule.reversed(&names[0])).collect()
    };
    let mut placed = PlacedPods::default();
    for name in &names {
        placed.services.insert(name.clone(), PodsByNode::new());
        placed.staying.insert(name.clone(), PodsByNode::new());
    }
    for (number, (service, count, is_end)) in steps.iter().enumerate() {
        let service = usize::from(service % 3);
        let of = generation(services[service], "1");
        if *is_end {
            let held = placed.services[&names[service]].iter().find(|(_, pods)| **pods > 0);
            if let Some(node) = held.map(|(node, _)| node.clone()) {
                placed.take_out(&node, &of);
            }
            continue;
        }
        let one = |index| related(index, services[service], &of_service(service));
        let pods: Vec<PodRequest> = (0..usize::from(count % 3)).map(one).collect();
        for (pod, name) in pods.iter().zip(place_beside(&placed.clone(), &nodes, &pods)) {
            let Some(name) = name else { continue };
            let node = nodes.iter().find(|node| node.name == name).unwrap();
            prop_assert!(rules_hold(&nodes, &placed, pod, node), "step {}: {:?} on {}", number, pod, name);
            placed.add(&name, &of);
        }
        // Nearness was there when a pod was placed; away is for ever.
        for rule in rules.iter().filter(|rule| rule.hard && rule.kind == RelationKind::Apart) {
            for node in
                nodes.iter().filter(|node| placed.services[&names[0]].get(&node.name).is_some_and(|n| *n > 0))
            {
                prop_assert_eq!(related_pods(&nodes, &placed, node, rule).0, 0, "{:?}", rule);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn services_that_keep_away_never_meet_whoever_places_their_pods(
        steps in prop::collection::vec((0..3u8, any::<u8>(), prop::bool::weighted(0.3)), 1..40),
        keys in prop::collection::vec((1..3usize, 0..2usize, any::<bool>(), prop::bool::weighted(0.8)), 1..3),
    ) {
        let rules: Vec<Relation> = keys.into_iter().map(|(service, key, is_apart, hard)| {
            let kind = if is_apart { RelationKind::Apart } else { RelationKind::Near };
            relation(["db", "web", "cache"][service], ["zone", "node.hostname"][key], kind, hard)
        }).collect();
        churn(&steps, &rules)?;
    }
}
