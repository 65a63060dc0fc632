//! A stored decision is made again from its facts, whatever the rules, profiles and problems of nodes.

use std::net::{IpAddr, Ipv4Addr};

use model::ids::VolumeName;
use model::node::NodeSettings;
use model::node::host_access::{HostAccess, HostRequest};
use model::spec::{PodSpec, Stateful};

use super::profiles::{any_needs, any_profiled_pods};
use super::*;

/// The node that a move leads to, the node and engine with its data, whether it asks for the address.
type PodRest = (Option<u8>, Option<(u8, u8)>, bool);

/// Facts that the strategies of other properties leave out.
#[derive(Debug, Clone)]
struct Rest {
    /// Of each node: form, engine, whether pods may take ports of the address.
    nodes: Vec<(Option<u32>, u8, bool)>,
    pods: Vec<PodRest>,
    /// The pods of the first service are ordinals.
    is_stateful: bool,
    uses: Vec<u8>,
}

fn any_rest() -> impl Strategy<Value = Rest> {
    let node = (prop::option::weighted(0.9, 3..5u32), 0..3u8, any::<bool>());
    let target = prop::option::weighted(0.2, 0..14u8);
    let data = prop::option::weighted(0.1, (0..12u8, 0..3u8));
    let pod = (target, data, prop::bool::weighted(0.1));
    (
        prop::collection::vec(node, 12),
        prop::collection::vec(pod, 40),
        any::<bool>(),
        prop::collection::vec(0..12u8, 0..8),
    )
        .prop_map(|(nodes, pods, is_stateful, uses)| Rest { nodes, pods, is_stateful, uses })
}

fn address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))
}

fn host_request() -> Arc<HostRequest> {
    let spec = serde_json::json!({"containers": [{"image": "a", "ports": ["10.0.0.1:80:80"]}]});
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    Arc::new(HostRequest::of(&spec).unwrap())
}

fn name(number: u8) -> NodeName {
    NodeName::new(format!("n{number}")).unwrap()
}

fn with_rest(nodes: &mut [Node], pods: &mut [PodRequest], rest: &Rest) {
    for (node, (forms, engine, allows)) in nodes.iter_mut().zip(&rest.nodes) {
        node.facts.engine_id = format!("e{engine}");
        let port_addresses = (!allows).then(Vec::new).or_else(|| Some(vec![address()]));
        let host = HostAccess { port_addresses, ..HostAccess::default() };
        let resources = node.offered_ids().clone();
        node.facts.settings = forms.map(|forms| NodeSettings { forms, host, secret_key: None, resources });
    }
    let rule: Arc<Stateful> = Arc::new(serde_json::from_str("true").unwrap());
    let request = host_request();
    for (index, (pod, (target, data, asks))) in pods.iter_mut().zip(&rest.pods).enumerate() {
        let requirements = &mut pod.requirements;
        pod.target = target.map(name).map(Target::Planned);
        requirements.host = asks.then(|| request.clone());
        requirements.volumes = data.and_then(|(node, engine)| {
            let bound = BoundVolume {
                name: VolumeName::new("data").unwrap(),
                node: name(node),
                engine_id: Some(format!("e{engine}")),
                is_removing: false,
            };
            VolumePlaces { bound: vec![bound], ..VolumePlaces::default() }.into_requirement()
        });
        if rest.is_stateful && pod.generation.as_ref().is_some_and(|of| of.service.as_str() == "s0") {
            requirements.needs_newest_form = true;
            pod.ordinal = Some(Ordinal { index: index as u32, rule: rule.clone() });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_stored_decision_is_made_again_from_its_facts(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
        needs in any_needs(),
        weights in any_weights(),
        rest in any_rest(),
    ) {
        let (mut nodes, mut pods) = (nodes, pods);
        with_rest(&mut nodes, &mut pods, &rest);
        let mut snapshot = snapshot_by(weights, &nodes);
        snapshot.set_placed(placed);
        snapshot.set_needs(needs);
        rest.uses.iter().for_each(|node| snapshot.commit_use(&name(*node)));
        let policy = PlacementPolicy { weights, ..PlacementPolicy::default() };
        let all: Vec<usize> = (0..pods.len()).collect();
        let plain = decide(&snapshot, NOW, &policy, &pods);
        let (decisions, records) = decide_and_record(&snapshot, NOW, &policy, &pods, &all);
        prop_assert_eq!(&decisions, &plain, "observing changes nothing");
        let placed = decisions.iter().filter_map(|decision| node_of(&decision.outcome)).count();
        prop_assert_eq!(placed, records.len());
        for (pod, record) in records {
            let stored = record.to_json().expect("small enough");
            prop_assert!(stored.len() <= 2_048);
            let read = DecisionRecord::parse(stored.as_bytes()).expect("readable");
            let chosen = node_of(&decisions[pod].outcome);
            prop_assert_eq!(&chosen, &Some(read.node.clone()));
            prop_assert_eq!(read.replay(), chosen, "{}", stored);
            prop_assert!(read.fitting > 0 && read.fitting <= read.node_count);
            let evaluations = read.explain();
            prop_assert!(evaluations.iter().any(|one| one.node == read.node && one.is_feasible()));
            if pods[pod].target.is_none() {
                prop_assert_eq!(&evaluations[0].node, &read.node, "explain agrees");
            }
        }
    }
}

#[test]
fn a_decision_of_a_large_cluster_fits_into_an_entry_and_names_each_reason() {
    let full = |i: usize| node(&format!("full{i}")).pods(110, 110).build();
    let cordoned = |i: usize| node(&format!("cordoned{i}")).with(|n| n.cordoned = true).build();
    let free = |i: usize| node(&format!("w{i}")).pods(i as u64, 1_000).build();
    let nodes: Vec<Node> =
        (0..300).map(full).chain((0..200).map(cordoned)).chain((0..500).map(free)).collect();
    let snapshot = snapshot(&nodes);
    let policy = PlacementPolicy::default();
    let (_, mut records) = decide_and_record(&snapshot, NOW, &policy, &[pod(0, 100, 1 << 20)], &[0]);
    let (_, record) = records.remove(0);
    let json = record.to_json().unwrap();
    let read = DecisionRecord::parse(json.as_bytes()).unwrap();
    assert_eq!((read.node_count, read.fitting, read.node.as_str()), (1_000, 500, "w0"));
    let refused = BTreeMap::from([("Cordoned", 200), ("TooManyPods", 300)].map(|(k, v)| (k.to_owned(), v)));
    assert_eq!(read.refused, refused);
    let names: Vec<String> = read.explain().iter().map(|one| one.node.to_string()).collect();
    assert_eq!(names, ["w0", "w1", "w2", "w3", "cordoned0", "full0"]);
    assert!(DecisionRecord::parse(br#"{"form":1}"#).is_none());
    let later = json.replacen(r#""form":1"#, r#""form":2"#, 1);
    assert!(DecisionRecord::parse(later.as_bytes()).is_none(), "of a later version");
}
