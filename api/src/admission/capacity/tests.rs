#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use model::ids::SpecId;
use model::node::NodeSettings;
use model::node::host_access::HostAccess;
use model::spec::ServiceInput;
use serde_json::{Value, json};
use testkit::fixtures;

use super::amounts::memory;
use super::*;
use crate::http::problem::ApiProblem;

const GIB: u64 = 1 << 30;

fn node(name: &str) -> Node {
    let capacity =
        Resources { cpu_millis: 4_000, memory_bytes: 10 * GIB, pids: 1_000, disk_bytes: 10 * GIB, pods: 100 };
    fixtures::node(name, capacity)
}

fn with(name: &str, change: impl FnOnce(&mut Node)) -> Node {
    let mut node = node(name);
    change(&mut node);
    node
}

fn desired(fields: &Value) -> DesiredService {
    let mut input = json!({"name": "web", "image": "nginx"});
    input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    ServiceInput::from_value(&input).unwrap().normalize().unwrap()
}

fn service(fields: &Value) -> Service {
    Service { spec_id: SpecId::random(), ..fixtures::service_of(desired(fields)) }
}

fn detail(demand: &Demand, nodes: &[Node]) -> String {
    demand.shortage(nodes).map(|shortage| ApiProblem::from(shortage).detail).unwrap_or_default()
}

#[test]
fn what_no_node_allows_is_refused_with_the_setting_and_what_one_may_allow_is_not() {
    let allowing = |name: &str, prefixes: &[&str]| {
        let host = HostAccess {
            bind_prefixes: prefixes.iter().map(Into::into).collect(),
            port_addresses: Some(Vec::new()),
        };
        let settings = NodeSettings { host, ..NodeSettings::default() };
        with(name, |node| node.facts.settings = Some(settings))
    };
    let refusing = [allowing("a", &[]), allowing("b", &["/srv"])];
    let time = json!({"volumes": ["/etc/localtime:/etc/localtime:ro"]});
    let open = json!({"ports": ["0.0.0.0:80:80"]});
    for (fields, part) in [
        (
            &time,
            "no node allows its pods: paths of the host have to be below KUBELEET_BIND_PREFIXES of the node, and /etc",
        ),
        (
            &open,
            "no node allows its pods: port addresses besides loopback have to be in KUBELEET_PORT_ADDRESSES",
        ),
    ] {
        let demand = Demand::of(&desired(fields), None);
        assert!(detail(&demand, &refusing).starts_with(part), "{}", detail(&demand, &refusing));
        let (shown, problem) = (demand.shortage(&refusing).unwrap(), demand.shortage(&[]));
        assert_eq!((shown.nodes.len(), problem), (2, None), "without nodes nothing is known");
        let old = [refusing[0].clone(), node("old")];
        assert_eq!(demand.shortage(&old), None, "a worker whose settings are unknown may allow it");
        let with_external = [refusing[0].clone(), with("g", |node| node.kind = NodeKind::External)];
        assert!(demand.shortage(&with_external).is_some(), "an external worker knows no such field");
        let running = Demand::of(&desired(fields), Some(&service(fields)));
        assert_eq!(running.shortage(&refusing), None, "a service that has it can be changed");
    }
    let one = [refusing[0].clone(), allowing("b", &["/etc/localtime"])];
    assert_eq!(Demand::of(&desired(&time), None).shortage(&one), None);
    let mut large = time;
    large["memory"] = json!("8G");
    large["replicas"] = json!(2);
    assert!(
        detail(&Demand::of(&desired(&large), None), &one).contains("requires 16G of memory but only 10G")
    );
}

#[test]
fn a_service_is_refused_if_no_nodes_declare_enough_ids_of_its_named_resources() {
    let offers = |name: &str, declared: &str| {
        let settings = NodeSettings { resources: declared.parse().unwrap(), ..NodeSettings::default() };
        with(name, |node| {
            node.facts.settings = Some(settings);
            // It may be free later.
            node.given_ids = [("gpu/0".to_owned(), "other".to_owned())].into();
        })
    };
    let nodes = [offers("a", "gpu=3 slots=1"), offers("b", "gpu=1"), node("c")];
    for (fields, expected) in [
        (json!({"resources": {"gpu": 3}}), ""),
        (json!({"resources": {"gpu": 1}, "replicas": 4}), ""),
        (
            json!({"resources": {"gpu": 1}, "replicas": 5}),
            "requires gpu=1 for each of 5 pods but nodes declare enough for only 4 (KUBELEET_RESOURCES of each): a has \
             gpu=3, b has gpu=1, c has gpu=0; declare more, or add --allow-partial",
        ),
        (json!({"resources": {"gpu": 1}, "replicas": 1, "kind": "job", "job": {"completions": 9}}), ""),
        (
            json!({"resources": {"gpu": 1, "fpga": 1}}),
            "requires fpga=1 gpu=1 for each of 1 pods but nodes declare enough for only 0 (KUBELEET_RESOURCES of each): \
             a has fpga=0 gpu=3, b has fpga=0 gpu=1, c has fpga=0 gpu=0; declare more, or add --allow-partial",
        ),
    ] {
        assert_eq!(detail(&Demand::of(&desired(&fields), None), &nodes), expected, "{fields}");
    }
    let large = json!({"resources": {"gpu": 4}, "image": "a"});
    let running = Demand::of(&desired(&large), Some(&service(&json!({"resources": {"gpu": 4}}))));
    assert_eq!(running.shortage(&nodes), None, "a service that has it can be changed");
}

#[test]
fn a_new_service_is_refused_if_a_pod_fits_no_node_or_all_do_not_fit_what_is_free() {
    let used = |memory: u64| with("b", |node| node.used.memory_bytes = memory * GIB);
    let port = |holder: &str| {
        let holder = holder.to_owned();
        with("b", |node| drop(node.host_ports.insert("80/tcp".to_owned(), holder)))
    };
    let small = with("b", |node| {
        node.facts.capacity = Resources { memory_bytes: 20 * GIB, pods: 100, ..Resources::default() };
    });
    let (a, b) = (node("a"), node("b"));
    for (case, fields, nodes, expected) in [
        (
            "one pod is larger than any node",
            json!({"memory": "12G"}),
            vec![a.clone(), used(9)],
            "requires 12G of memory but only 10G can be allocated",
        ),
        (
            "all pods are larger than one node",
            json!({"memory": "4G", "replicas": 3}),
            vec![a.clone()],
            "requires 12G of memory but only 10G can be allocated",
        ),
        ("they fit", json!({"memory": "5G", "replicas": 4}), vec![a.clone(), b.clone()], ""),
        (
            "the sum is free, but in pieces",
            json!({"memory": "6G", "replicas": 3}),
            vec![a.clone(), b.clone()],
            "requires 18G of memory but only 12G can be allocated",
        ),
        (
            "what others use",
            json!({"memory": "5G", "replicas": 4}),
            vec![a.clone(), used(6)],
            "requires 20G of memory but only 14G can be allocated",
        ),
        ("cores", json!({"cpus": 4.5}), vec![a.clone()], "requires 4.5 CPUs but only 4 can be allocated"),
        (
            "the smallest difference is seen",
            json!({"memory": 10 * GIB + 1}),
            vec![a.clone()],
            "requires 10.01G of memory but only 10G can be allocated",
        ),
        (
            "processes",
            json!({"pids_limit": 400, "replicas": 5}),
            vec![a.clone(), b.clone()],
            "requires 2000 processes but only 1600 can be allocated",
        ),
        (
            "disk",
            json!({"volumes": [{"source": "data", "target": "/d", "space": "4G"}], "replicas": 3}),
            vec![a.clone()],
            "requires 12G of disk but only 10G can be allocated",
        ),
        (
            "a volume in memory and a shared one take no disk",
            json!({"volumes": [{"type": "tmpfs", "target": "/t", "tmpfs": {"size": "1G"}},
                {"source": "up", "target": "/u", "kind": "shared", "space": "100G"}]}),
            vec![a.clone()],
            "",
        ),
        (
            "memory here, cores there",
            json!({"memory": "12G", "cpus": 2}),
            vec![a.clone(), small],
            "requires 12G of memory but only 10G can be allocated",
        ),
        (
            "a port for each node",
            json!({"ports": ["80:80"], "replicas": 3}),
            vec![a.clone(), b.clone()],
            "requires 3 nodes with port 80/tcp but only 2 can be allocated",
        ),
        (
            "a port that another service has",
            json!({"ports": ["80:80"], "replicas": 2}),
            vec![a.clone(), port("other")],
            "requires 2 nodes with port 80/tcp but only 1 can be allocated",
        ),
        (
            "more pods than rules allow on all nodes",
            json!({"placement": {"max_per_node": 2}, "replicas": 5}),
            vec![a.clone(), b.clone()],
            "max_per_node leaves room for 4 of 5 pods: 2 nodes can run them; add nodes, raise max_per_node, or add \
             --allow-partial",
        ),
        (
            "a label that no node has",
            json!({"placement": {"spread": [{"by": "rack", "hard": true}]}}),
            vec![a.clone()],
            "no node satisfies its rules: a has no label rack, over which the service is spread; label a node with \
             `kubeleet node label`, or add --allow-partial",
        ),
        (
            "no label of a place near another service",
            json!({"placement": {"affinity": [{"service": "db", "by": "rack", "hard": true}]}}),
            vec![a.clone()],
            "no node satisfies its rules: a has no label rack, by which the service runs near db; label a node with \
             `kubeleet node label`, or add --allow-partial",
        ),
        ("a label that need not be", json!({"placement": {"spread": [{"by": "rack"}]}}), vec![a.clone()], ""),
        ("a port that the engine chooses", json!({"ports": [80], "replicas": 9}), vec![a.clone()], ""),
        ("as many pods as the nodes take", json!({"replicas": 200}), vec![a.clone(), b.clone()], ""),
        (
            "more pods than the nodes take",
            json!({"replicas": 100_000}),
            vec![a.clone(), used(1)],
            "requires room for 100000 pods but the nodes take only 200 (KUBELEET_MAX_PODS of each)",
        ),
        (
            "an external worker takes pods that need only an image",
            json!({"replicas": 150}),
            vec![a.clone(), with("b", |node| node.kind = NodeKind::External)],
            "",
        ),
        ("no pods", json!({"memory": "12G", "replicas": 0}), vec![a.clone()], ""),
    ] {
        assert_eq!(detail(&Demand::of(&desired(&fields), None), &nodes), expected, "{case}");
    }
}

#[test]
fn what_is_not_known_refuses_nothing_and_what_may_come_back_counts() {
    let large = Demand::of(&desired(&json!({"memory": "12G"})), None);
    let of_15 = |change: fn(&mut Node)| {
        with("b", |node| {
            node.facts.capacity.memory_bytes = 15 * GIB;
            change(node);
        })
    };
    let refused = "requires 12G of memory but only 10G can be allocated";
    for (case, nodes, expected) in [
        ("no node yet", vec![], ""),
        ("all nodes are away", vec![with("a", |node| node.state = NodeState::Dead)], ""),
        ("an external worker only", vec![with("a", |node| node.kind = NodeKind::External)], ""),
        (
            "an external worker gets no such pod",
            vec![node("a"), with("b", |node| node.kind = NodeKind::External)],
            refused,
        ),
        ("cordoned", vec![node("a"), of_15(|node| node.cordoned = true)], ""),
        ("dead", vec![node("a"), of_15(|node| node.state = NodeState::Dead)], ""),
        (
            "its engine has a problem",
            vec![node("a"), of_15(|node| node.engine_problem = Some("x".into()))],
            "",
        ),
    ] {
        assert_eq!(detail(&large, &nodes), expected, "{case}");
    }
}

#[test]
fn a_change_counts_what_the_service_has_as_free() {
    let full = || vec![with("a", |node| (node.used.memory_bytes, node.used.cpu_millis) = (8 * GIB, 2_000))];
    let two_of_4 = json!({"memory": "4G", "replicas": 2});
    for (case, before, after, expected) in [
        ("unchanged", two_of_4.clone(), two_of_4.clone(), ""),
        ("another image", two_of_4.clone(), json!({"memory": "4G", "replicas": 2, "image": "nginx:2"}), ""),
        ("fewer", two_of_4.clone(), json!({"memory": "4G", "replicas": 1}), ""),
        (
            "one more",
            two_of_4.clone(),
            json!({"memory": "4G", "replicas": 3}),
            "requires 4G of memory but only 2G can be allocated",
        ),
        ("larger, and its own pods are free", two_of_4.clone(), json!({"memory": "5G", "replicas": 2}), ""),
        (
            "larger than with its own",
            two_of_4.clone(),
            json!({"memory": "6G", "replicas": 2}),
            "requires 12G of memory but only 10G can be allocated",
        ),
        (
            "a pod larger than the node",
            two_of_4.clone(),
            json!({"memory": "11G", "replicas": 1}),
            "requires 11G of memory but only 10G can be allocated",
        ),
        ("more, and each smaller", two_of_4.clone(), json!({"memory": "2G", "replicas": 5}), ""),
    ] {
        assert_eq!(
            detail(&Demand::of(&desired(&after), Some(&service(&before))), &full()),
            expected,
            "{case}"
        );
    }
    let scale = |replicas| detail(&Demand::of_scale(&service(&two_of_4), replicas), &full());
    assert_eq!((scale(2), scale(0)), (String::new(), String::new()));
    let small = service(&json!({"replicas": 4}));
    let typo = detail(&Demand::of_scale(&small, 100_000), &full());
    assert!(typo.starts_with("requires room for 99996 pods but the nodes take only 100"), "{typo}");
    assert_eq!(scale(5), "requires 12G of memory but only 2G can be allocated");
}

#[test]
fn what_was_admitted_a_moment_ago_may_have_taken_what_is_free() {
    let nodes = [node("a"), node("b")];
    let of = |fields: &Value| Demand::of(&desired(fields), None);
    let large = of(&json!({"memory": "8G"}));
    assert!(!large.may_lack_after(std::slice::from_ref(&large), &nodes));
    assert!(large.may_lack_after(&[large.clone(), large.clone()], &nodes));
    let port = of(&json!({"ports": ["80:80"]}));
    assert!(
        port.may_lack_after(std::slice::from_ref(&port), &nodes) && !port.may_lack_after(&[large], &nodes)
    );
}

#[test]
fn a_changed_service_gets_its_own_ports_again() {
    let nodes = [with("a", |node| drop(node.host_ports.insert("80/tcp".into(), "web".into())))];
    let before = service(&json!({"ports": ["80:80"]}));
    let after = |fields: &Value| detail(&Demand::of(&desired(fields), Some(&before)), &nodes);
    assert_eq!(after(&json!({"ports": ["80:80", "443:443"]})), "");
    assert_eq!(
        after(&json!({"ports": ["80:80", "443:443"], "replicas": 2})),
        "requires 2 nodes with port 443/tcp and 80/tcp but only 1 can be allocated"
    );
    assert_eq!(
        detail(&Demand::of_scale(&before, 2), &nodes),
        "requires 1 node with port 80/tcp but only 0 can be allocated"
    );
}

#[test]
fn each_node_has_its_reason() {
    let reasons = |fields: &Value, nodes: &[Node]| {
        let shortage = Demand::of(&desired(fields), None).shortage(nodes).unwrap();
        shortage.nodes.into_iter().map(|node| format!("{}: {}", node.node, node.reason)).collect::<Vec<_>>()
    };
    let used = with("b", |node| {
        node.used = Resources { memory_bytes: 9 * GIB, cpu_millis: 500, pids: 0, disk_bytes: 0, pods: 1 }
    });
    let nodes = [used, node("a")];
    assert_eq!(
        reasons(&json!({"memory": "12G", "cpus": 5}), &nodes),
        ["a: offers 4 CPUs and 10G of memory", "b: offers 4 CPUs and 10G of memory"]
    );
    assert_eq!(
        reasons(&json!({"memory": "2G", "replicas": 9}), &nodes),
        ["a: 10G of memory free", "b: 1G of memory free"]
    );
    let taken = [with("a", |node| drop(node.host_ports.insert("80/tcp".into(), "db".into()))), node("b")];
    assert_eq!(
        reasons(&json!({"ports": ["80:80"], "replicas": 2}), &taken),
        ["a: port 80/tcp is taken by db", "b: takes one of the pods"]
    );
}

#[test]
fn memory_is_written_as_docker_writes_it() {
    for (bytes, up, down) in [
        (0, "0B", "0B"),
        (1023, "1023B", "1023B"),
        (64 << 20, "64M", "64M"),
        (3 * GIB / 2, "1.5G", "1.5G"),
        (10 * GIB - 1, "10G", "9.99G"),
        (12 * GIB, "12G", "12G"),
        (1 << 50, "1024T", "1024T"),
    ] {
        let text = (memory(bytes, Rounded::Up), memory(bytes, Rounded::Down));
        assert_eq!((text.0.as_str(), text.1.as_str()), (up, down), "{bytes}");
    }
}
