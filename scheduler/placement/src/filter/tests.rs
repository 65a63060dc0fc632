//! Tables for all filters: a change to a healthy node, and the resulting refusals.

use std::time::Duration;

use model::ids::{NodeName, VolumeName};
use model::node::host_access::HostAccess;
use model::node::{NodeKind, NodeSettings, NodeState, Resources, SharedVolumesState};
use model::spec::{FORM_WITH_RULES, HostPorts, Placement};

use super::*;
use crate::policy::Weights;
use crate::testing::{NOW, NodeBuilder, node};
use crate::{BoundVolume, ContestedVolume, GivenUpCopy, NodeRules, UnreportedVolume, VolumePlaces};
use model::service::volume::UnreportedNode;

const GIB: u64 = 1 << 30;

fn refusals(node: NodeBuilder, requirements: Requirements) -> Vec<String> {
    let node = node.build();
    let candidate = Candidate::new(&node, &Weights::default());
    let context = EvalContext { now: NOW, dead_after: Duration::from_secs(20) };
    failed(&candidate, &requirements, &context)
        .map(|filter| {
            let detail = (filter.explain)(&candidate, &requirements, &context, &node);
            format!("{}: {detail}", filter.reason)
        })
        .collect()
}

#[test]
fn refusals_of_a_pod_without_requests() {
    let cases: [(&str, NodeBuilder, &[&str]); 15] = [
        ("healthy", node("a"), &[]),
        ("silent for exactly dead_after", node("a").with(|n| n.beat = NOW - 20_000), &[]),
        (
            "silent for longer",
            node("a").with(|n| n.beat = NOW - 20_001),
            &["NotReady: last heartbeat 20.001 s ago, at most 20 s allowed"],
        ),
        ("heartbeat ahead of the clock", node("a").with(|n| n.beat = NOW + 5_000), &[]),
        ("no heartbeat", node("a").with(|n| n.beat = 0), &["NotReady: has not sent a heartbeat yet"]),
        (
            "dead",
            node("a").with(|n| n.state = NodeState::Dead),
            &["NotReady: declared dead; its worker must register again"],
        ),
        (
            "cordoned",
            node("a").with(|n| n.cordoned = true),
            &["Cordoned: gets no new pods until it is uncordoned"],
        ),
        (
            "engine",
            node("a").with(|n| n.engine_problem = Some("no space left".into())),
            &["EngineUnhealthy: container engine is unhealthy: no space left"],
        ),
        (
            "engine without details",
            node("a").with(|n| n.engine_problem = Some(String::new())),
            &["EngineUnhealthy: container engine is unhealthy: no details reported"],
        ),
        (
            "full disk",
            node("a").with(|n| n.disk_problem = Some("97 % is used".into())),
            &["DiskPressure: its disk is full: 97 % is used"],
        ),
        ("last slot", node("a").pods(109, 110), &[]),
        ("full", node("a").pods(110, 110), &["TooManyPods: has 110 of 110 pods"]),
        ("over capacity", node("a").pods(12, 10), &["TooManyPods: has 12 of 10 pods"]),
        ("no free CPU and memory, none requested", node("a").cpu(9_000, 4_000).memory(9, 4), &[]),
        ("external worker", node("a").with(|n| n.kind = NodeKind::External), &[]),
    ];
    let requirements = Requirements { needs_only_image: true, ..Requirements::default() };
    for (case, node, expected) in cases {
        assert_eq!(refusals(node, requirements.clone()), expected, "{case}");
    }
}

#[test]
fn refusals_of_a_pod_with_requests() {
    let cases: [(&str, NodeBuilder, &[&str]); 8] = [
        ("fits", node("a").cpu(2_000, 4_000).memory(6 * GIB, 8 * GIB), &[]),
        (
            "a thousandth of a core short",
            node("a").cpu(2_001, 4_000),
            &["InsufficientCpu: needs 2 cores, 1.999 of 4 free"],
        ),
        (
            "a byte short",
            node("a").memory(6 * GIB + 1, 8 * GIB),
            &["InsufficientMemory: needs 2 GiB, 1.99 GiB of 8 GiB free"],
        ),
        (
            "overcommitted",
            node("a").memory(8 * GIB, 4 * GIB),
            &["InsufficientMemory: needs 2 GiB, 0 B of 4 GiB free"],
        ),
        (
            "external worker",
            node("a").with(|n| n.kind = NodeKind::External),
            &["NeedsMoreThanGuest: served by an external worker, which can only run plain images"],
        ),
        (
            "processes",
            node("a").with(|n| n.used.pids = 701),
            &["InsufficientPids: needs 300 processes, 299 of 1000 free"],
        ),
        (
            "disk",
            node("a").with(|n| n.used.disk_bytes = 91 * GIB),
            &["InsufficientDisk: needs 10 GiB of disk, 9 GiB of 100 GiB free"],
        ),
        (
            "several at once",
            node("a").cpu(4_000, 4_000).memory(7 * GIB, 8 * GIB).with(|n| n.cordoned = true),
            &[
                "Cordoned: gets no new pods until it is uncordoned",
                "InsufficientCpu: needs 2 cores, 0 of 4 free",
                "InsufficientMemory: needs 2 GiB, 1 GiB of 8 GiB free",
            ],
        ),
    ];
    let requirements = Requirements {
        request: Resources {
            cpu_millis: 2_000,
            memory_bytes: 2 * GIB,
            pids: 300,
            disk_bytes: 10 * GIB,
            pods: 0,
        },
        ..Requirements::default()
    };
    for (case, node, expected) in cases {
        assert_eq!(refusals(node, requirements.clone()), expected, "{case}");
    }
}

#[test]
fn a_host_port_belongs_to_one_pod_of_a_node() {
    let requirements = Requirements {
        host_ports: HostPorts::from_text("53/udp 8080/tcp".into()),
        ..Requirements::default()
    };
    let with = |port: &str| {
        let port = port.to_owned();
        node("a").with(|n| drop(n.host_ports.insert(port, "web".to_owned())))
    };
    assert_eq!(refusals(with("8080/udp"), requirements.clone()), [""; 0]);
    assert_eq!(refusals(with("8080/tcp"), requirements), ["HostPortTaken: port 8080/tcp is taken by web"]);
    assert_eq!(refusals(with("8080/tcp"), Requirements::default()), [""; 0]);
}

#[test]
fn a_pod_goes_only_where_enough_ids_of_its_named_resources_are_free() {
    let pod = r#"{"containers":[{"image":"a"}],"resources":{"gpu":2}}"#;
    let requirements = Requirements::of(&serde_json::from_str(pod).unwrap());
    let offers = |declared: &str, given: &[&str]| node("a").offers(declared, given);
    for (declared, given, expected) in [
        ("gpu=2", &[][..], &[][..]),
        ("gpu=3 slots=1", &["gpu/1", "slots/0"], &[]),
        ("gpu=3", &["gpu/1", "gpu/2"], &["InsufficientResource: needs 2 gpu, 1 of 3 free"]),
        // Given before the node declared fewer.
        ("gpu=2", &["gpu/7", "gpu/8"], &[]),
        ("slots=9", &[], &["InsufficientResource: needs 2 gpu, and the node has none"]),
        ("", &[], &["InsufficientResource: needs 2 gpu, and the node has none"]),
    ] {
        assert_eq!(refusals(offers(declared, given), requirements.clone()), expected, "{declared} {given:?}");
    }
    let old = offers("gpu=2", &[]).with(|n| n.facts.settings.as_mut().unwrap().forms = 3);
    let expected = "WorkerTooOld: its worker cannot read the rules of the service; upgrade it";
    assert_eq!(refusals(old, requirements), [expected]);
    assert_eq!(refusals(offers("gpu=1", &["gpu/0"]), Requirements::default()), [""; 0]);
}

#[test]
fn a_pod_that_asks_something_of_the_host_goes_only_to_nodes_that_allow_it() {
    let pod = r#"{"containers":[{"image":"a","volumes":["/etc/localtime:/etc/localtime:ro"]}]}"#;
    let requirements = Requirements::of(&serde_json::from_str(pod).unwrap());
    let with = |prefixes: Option<&[&str]>| {
        let settings = prefixes.map(|prefixes| NodeSettings {
            host: HostAccess {
                bind_prefixes: prefixes.iter().map(Into::into).collect(),
                ..HostAccess::default()
            },
            ..NodeSettings::default()
        });
        node("a").with(|n| n.facts.settings = settings)
    };
    assert_eq!(refusals(with(Some(&["/etc/localtime"])), requirements.clone()), [""; 0]);
    assert_eq!(refusals(with(None), requirements.clone()), [""; 0], "its worker decides");
    let refused = refusals(with(Some(&["/srv"])), requirements);
    let expected = "NotAllowed: paths of the host have to be below KUBELEET_BIND_PREFIXES of the node, and \
                    /etc/localtime is not";
    assert!(refused.len() == 1 && refused[0].starts_with(expected), "{refused:?}");
    assert_eq!(refusals(with(Some(&[])), Requirements::default()), [""; 0]);
}

#[test]
fn a_pod_goes_only_to_nodes_that_satisfy_the_constraints_of_its_service() {
    let with = |constraints: &[&str]| {
        let constraints = constraints.iter().map(|text| (*text).to_owned()).collect();
        Requirements {
            rules: NodeRules::of(&Placement { constraints, ..Placement::default() }),
            ..Requirements::default()
        }
    };
    let a = || node("a").with(|n| n.facts.labels = [("zone".into(), "a".into())].into());
    for (constraints, expected) in [
        (&[][..], &[][..]),
        (&["zone in (a,b)", "!legacy", "node.hostname != w3"], &[]),
        (&["zone == a", "disk"], &["Constraint: has no label disk, but the service needs disk"]),
        (&["zone notin (a)"], &["Constraint: has zone=a, but the service needs zone notin (a)"]),
        (&["node.hostname == w3"], &["Constraint: is not a node with node.hostname == w3"]),
        (&["a b"], &["Constraint: the service's constraint \"a b\" is unreadable"]),
    ] {
        assert_eq!(refusals(a(), with(constraints)), expected, "{constraints:?}");
    }
}

#[test]
fn a_pod_with_rules_goes_only_to_workers_that_can_read_its_specification() {
    let placement = Placement { constraints: vec!["!legacy".to_owned()], ..Placement::default() };
    let with_rules = || Requirements { rules: NodeRules::of(&placement), ..Requirements::default() };
    let reads = |forms| {
        node("a").with(move |n| n.facts.settings = Some(NodeSettings { forms, ..NodeSettings::default() }))
    };
    let expected = ["WorkerTooOld: its worker cannot read the rules of the service; upgrade it"];
    assert_eq!(refusals(reads(0), with_rules()), expected);
    assert_eq!(refusals(reads(0), Requirements::default()), [""; 0]);
    assert_eq!(refusals(reads(FORM_WITH_RULES), with_rules()), [""; 0]);
    let stateful = Requirements { needs_newest_form: true, ..Requirements::default() };
    assert_eq!(refusals(reads(0), stateful), expected);
    let external = reads(0).with(|n| n.kind = NodeKind::External);
    let image_only = Requirements { needs_only_image: true, ..with_rules() };
    assert_eq!(refusals(external, image_only), [""; 0], "it reads none");
}

#[test]
fn a_pod_with_a_shared_volume_goes_only_to_nodes_that_have_the_directory_of_the_cluster() {
    let requirements = Requirements { needs_shared_directory: true, ..Requirements::default() };
    let with = |state: Option<SharedVolumesState>| node("a").with(|n| n.shared_volumes = state);
    let refused = || Some(SharedVolumesState::Refused("its shared directory is not mounted".to_owned()));
    assert_eq!(refusals(with(Some(SharedVolumesState::Ready)), requirements.clone()), [""; 0]);
    assert_eq!(
        refusals(with(refused()), requirements.clone()),
        ["NoSharedDirectory: its shared directory is not mounted"]
    );
    assert_eq!(
        refusals(with(None), requirements),
        [
            "NoSharedDirectory: has no directory for shared volumes: start its worker with KUBELEET_SHARED_VOLUMES_DIR"
        ]
    );
    assert_eq!(refusals(with(refused()), Requirements::default()), [""; 0]);
}

#[test]
fn a_pod_waits_for_the_node_that_has_its_data() {
    let bound = |name: &str, on: &str, is_removing| BoundVolume {
        name: VolumeName::new(name).unwrap(),
        node: NodeName::new(on).unwrap(),
        engine_id: None,
        is_removing,
    };
    let of_engine =
        |engine: &str| vec![BoundVolume { engine_id: Some(engine.into()), ..bound("db_data_0", "a", false) }];
    let cases: [(&str, &[BoundVolume], &[&str]); 7] = [
        ("no data yet", &[], &[]),
        ("here", &[bound("db_data_0", "a", false)], &[]),
        (
            "elsewhere",
            &[bound("db_data_0", "a", false), bound("db_log_0", "w1", false)],
            &["VolumeElsewhere: its data is on w1: volume db_log_0"],
        ),
        (
            "on a node that is gone",
            &[bound("db_data_0", "gone", false)],
            &["VolumeElsewhere: its data is on gone: volume db_data_0"],
        ),
        (
            "being removed here",
            &[bound("db_data_0", "a", true)],
            &["VolumeElsewhere: volume db_data_0 is being removed on a"],
        ),
        ("of this machine", &of_engine("this"), &[]),
        (
            "of another machine with this name",
            &of_engine("another"),
            &["VolumeElsewhere: its data is on the machine that had the name a before: volume db_data_0"],
        ),
    ];
    for (case, volumes, expected) in cases {
        let requirements = with_volumes(VolumePlaces { bound: volumes.to_vec(), ..VolumePlaces::default() });
        let node = node("a").with(|node| node.facts.engine_id = "this".into());
        assert_eq!(refusals(node, requirements), expected, "{case}");
    }
}

fn with_volumes(places: VolumePlaces) -> Requirements {
    Requirements { volumes: places.into_requirement(), ..Requirements::default() }
}

#[test]
fn a_pod_waits_while_a_node_that_may_have_its_data_has_not_said_so() {
    for (nodes, who, first) in [(&["w1"][..], "w1", "w1"), (&["w1", "w2", "w3"], "w1 and 2 more", "w1")] {
        let volume = UnreportedVolume {
            name: VolumeName::new("db_data_0").unwrap(),
            nodes: nodes.iter().map(|name| unreported(name, false)).collect(),
        };
        let requirements = with_volumes(VolumePlaces { unreported: Some(volume), ..VolumePlaces::default() });
        let expected = format!(
            "VolumeUnreported: volume db_data_0 may be on {who}, not heard of since Redis was restarted or lost data: \
             start its worker, or `kubeleet node rm {first}` if its data is given up"
        );
        assert_eq!(refusals(node("a"), requirements), [expected]);
    }
    let nodes = vec![unreported("w1", true)];
    let volume = UnreportedVolume { name: VolumeName::new("db_data_0").unwrap(), nodes };
    let requirements = with_volumes(VolumePlaces { unreported: Some(volume), ..VolumePlaces::default() });
    let expected = "VolumeUnreported: volume db_data_0 may be on the machine that had the name w1 before, not heard of \
                    since Redis was restarted or lost data: start its worker, or `kubeleet node rm w1 --former` if its \
                    data is given up";
    assert_eq!(refusals(node("a"), requirements), [expected]);
}

#[test]
fn a_pod_waits_for_a_choice_between_copies_and_goes_to_no_node_with_one_that_was_given_up() {
    let name = VolumeName::new("db_data_0").unwrap();
    let nodes = ["w1", "w2"].map(|node| NodeName::new(node).unwrap()).to_vec();
    let contested = ContestedVolume { name: name.clone(), nodes };
    let requirements = with_volumes(VolumePlaces { contested: Some(contested), ..VolumePlaces::default() });
    let expected = "VolumeConflict: volume db_data_0 has copies on w1 and w2, and which one is wanted is not known: \
                    `kubeleet volume bind db_data_0 NODE` chooses";
    assert_eq!(refusals(node("a"), requirements), [expected]);
    for (on, expected) in
        [("b", None), ("a", Some("VolumeFormer: a has data of volume db_data_0 that was given up"))]
    {
        let copy = GivenUpCopy { name: name.clone(), node: NodeName::new(on).unwrap() };
        let requirements = with_volumes(VolumePlaces { given_up: vec![copy], ..VolumePlaces::default() });
        let found = refusals(node("a"), requirements);
        assert_eq!(found.len(), usize::from(expected.is_some()));
        assert!(
            found.iter().all(|found| expected.is_some_and(|expected| found.starts_with(expected))),
            "{found:?}"
        );
    }
}

fn unreported(name: &str, is_former: bool) -> UnreportedNode {
    UnreportedNode { name: NodeName::new(name).unwrap(), is_former }
}

#[test]
fn reasons_are_distinct_words_in_camel_case() {
    let of_profiles = PlacementProfile::ALL.into_iter().flat_map(profile::filters);
    let filters = NODE_FILTERS.iter().chain(POD_FILTERS).chain(of_profiles);
    let mut words: Vec<_> = filters.map(|filter| filter.reason).chain([Reason::NO_NODES]).collect();
    for word in &words {
        let word = word.as_str();
        assert!(word.starts_with(|c: char| c.is_ascii_uppercase()), "{word}");
        assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
    }
    let count = words.len();
    words.sort_unstable_by_key(|word| word.as_str());
    words.dedup();
    assert_eq!(words.len(), count);
}
