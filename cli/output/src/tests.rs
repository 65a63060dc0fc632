//! Complete outputs, as users see them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use jiff::Timestamp;
use model::event::{ClusterEvent, ObjectKind};
use model::network::PublishedPort;
use model::pod::lifecycle::Phase;
use model::pod::{NodeRefusal, Refusal};
use model::spec::Protocol;
use testkit::api_fixtures as fixtures;

use super::objects::*;
use super::test_output::captured_output;
use super::*;

/// The fixtures were created one minute after midnight.
const NOW: &str = "2026-01-31T00:06:00Z";

fn printed(format: OutputFormat, print: impl FnOnce(&mut Output)) -> String {
    let (mut output, captured) = captured_output(format);
    output.now = now();
    print(&mut output);
    captured.text()
}

fn event(kind: ObjectKind, object: &str, reason: &str) -> ClusterEvent {
    ClusterEvent {
        id: "1769817661000-0".to_owned(),
        at: 1_769_817_661_000,
        kind,
        object: object.to_owned(),
        reason: reason.to_owned(),
        name: if kind == ObjectKind::Pod { "web".to_owned() } else { String::new() },
        node: "worker1".to_owned(),
        phase: String::new(),
        message: "it\nruns".to_owned(),
    }
}

#[test]
fn a_list_of_services_in_every_format() {
    let services = [fixtures::service("web"), fixtures::service("database")];
    let show = |format| printed(format, |output| output.print_list(&services, "none").unwrap());
    assert_eq!(
        show(OutputFormat::Table),
        "NAME       READY   STATUS   IMAGE        AGE\n\
         web        3/3     ready    nginx:1.27   5m\n\
         database   3/3     ready    nginx:1.27   5m\n"
    );
    assert_eq!(show(OutputFormat::Name), "service/web\nservice/database\n");
    let wide = show(OutputFormat::Wide);
    assert!(wide.contains("GENERATION") && wide.contains("tier=front"), "{wide}");
    let json: serde_json::Value = serde_json::from_str(&show(OutputFormat::Json)).unwrap();
    assert_eq!((json["items"][1]["name"].as_str(), json.get("next")), (Some("database"), None));
    let yaml: serde_json::Value = serde_saphyr::from_str(&show(OutputFormat::Yaml)).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn an_empty_table_prints_nothing_on_standard_output() {
    let none: [api_types::PodView; 0] = [];
    let show = |format| printed(format, |output| output.print_list(&none, "no pods").unwrap());
    assert_eq!((show(OutputFormat::Table), show(OutputFormat::Name)), (String::new(), String::new()));
    assert_eq!(show(OutputFormat::Json), "{\n  \"items\": []\n}\n");
}

fn with_ports(mut pod: api_types::PodView) -> api_types::PodView {
    let port = |container_port, protocol, host_ip: &str, host_port| PublishedPort {
        container_port,
        protocol,
        host_ip: host_ip.parse().unwrap(),
        host_port,
    };
    pod.ports = vec![port(80, Protocol::Tcp, "127.0.0.1", 32769), port(53, Protocol::Udp, "::1", 53)];
    pod
}

#[test]
fn published_ports_are_described() {
    let pod = with_ports(fixtures::pod("djkf2345-9999", Phase::Running));
    let ports = "127.0.0.1:32769->80/tcp, [::1]:53->53/udp";
    let text = pods::describe(&pod, None, &[], now());
    assert!(text.contains(&format!("Ports:          {ports}\n")), "{text}");
    assert_eq!(pods::line(&pod), format!("web-0 djkf2345 running on worker1, {ports}"));
}

#[test]
fn a_description_has_the_whole_message() {
    let mut pod = fixtures::pod("djkf2345-9999", Phase::Assigned);
    pod.message = format!("could not start {}: port is already allocated", "x".repeat(300));
    assert!(pods::line(&pod).contains(&pod.message));
    assert!(pods::describe(&pod, None, &[], now()).contains(&pod.message));
}

#[test]
fn pods_and_nodes_as_tables() {
    let mut late = fixtures::pod("0b2a77aa-1111", Phase::Pending);
    (late.node, late.replica, late.reason) = (None, 1, "Unschedulable".to_owned());
    let pods = [with_ports(fixtures::pod("djkf2345-9999", Phase::Running)), late];
    assert_eq!(
        printed(OutputFormat::Table, |output| output.print_list(&pods, "none").unwrap()),
        "NAME    PHASE     REASON          RESTARTS   NODE      AGE   ID         PORTS\n\
         web-0   running   -               0          worker1   5m    djkf2345   \
         127.0.0.1:32769->80/tcp, [::1]:53->53/udp\n\
         web-1   pending   Unschedulable   0          -         5m    0b2a77aa   -\n"
    );
    let mut external = fixtures::node("old");
    (external.kind, external.fenceable, external.cordoned) = (model::node::NodeKind::External, false, true);
    assert_eq!(
        printed(OutputFormat::Table, |output| output
            .print_list(&[fixtures::node("worker1"), external], "none")
            .unwrap()),
        "NAME      STATUS           KIND             PODS    CPUS    MEMORY         HEARTBEAT   AGE\n\
         worker1   ready            kubeleet         3/250   0.5/2   64 MiB/2 GiB   2s          6m\n\
         old       ready,cordoned   guest,unfenced   3/250   0.5/2   64 MiB/2 GiB   2s          6m\n"
    );
}

#[test]
fn names_of_pods_are_those_that_commands_accept_and_unique() {
    let mut pushed = fixtures::pod("pushed-1", Phase::Running);
    pushed.service = None;
    let mut second = fixtures::pod("bbbb", Phase::Running);
    second.replica = 1;
    let twice = fixtures::pod("cccc", Phase::Stopping);
    let show = |pods: &[api_types::PodView]| {
        printed(OutputFormat::Name, |output| output.print_list(pods, "none").unwrap())
    };
    let first = fixtures::pod("aaaa", Phase::Running);
    let stopped = fixtures::pod("dddd", Phase::Stopped);
    assert_eq!(
        show(&[first.clone(), second, pushed, stopped]),
        "pod/web-0\npod/web-1\npod/pushed-1\npod/dddd\n"
    );
    assert_eq!(show(&[first, twice]), "pod/aaaa\npod/cccc\n");
}

#[test]
fn the_result_of_a_change_in_every_format() {
    let web = fixtures::service("web");
    let show = |format| printed(format, |output| output.print_result(&web, "created").unwrap());
    assert_eq!(show(OutputFormat::Table), "service/web created\n");
    assert_eq!(show(OutputFormat::Name), "service/web\n");
    assert!(show(OutputFormat::Json).starts_with("{\n  \"name\": \"web\""));
}

#[test]
fn describe_a_service() {
    let mut service = fixtures::service("web");
    (service.status.running, service.status.updated, service.status.assigned) = (2, 2, 1);
    service.status.message = "ImagePullBackOff: no such image".to_owned();
    let mut unhealthy = fixtures::pod("djkf2345-9999", Phase::Assigned);
    (unhealthy.reason, unhealthy.message) = ("ImagePullBackOff".to_owned(), "no such image".to_owned());
    let text = services::describe(
        &service,
        false,
        &[unhealthy],
        &[event(ObjectKind::Pod, "djkf2345-9999", "Scheduled")],
        now(),
    );
    assert_eq!(
        text,
        "Name:           web
Status:         starting
Pods:           2/3 running, 1 assigned
Message:        ImagePullBackOff: no such image
Updates:        stop-first (a pod is stopped before its successor starts)
Generation:     1
Labels:         tier=front
Created:        2026-01-31T00:01:00Z (5m ago)
Updated:        2026-01-31T00:01:00Z (5m ago)
On disconnect:  keep (pods run on while their node cannot reach Redis)
Grace period:   10 s between SIGTERM and SIGKILL

Container
  image        nginx:1.27
  environment  PASSWORD=…
  port         80/tcp on 127.0.0.1:8080
  memory       64 MiB
  restart      always

Unhealthy pods
  web-0 djkf2345 assigned on worker1 (ImagePullBackOff: no such image)

Events (oldest first)
  2026-01-31T00:01:01Z  Scheduled          pod/djkf2345 of web on worker1  it runs

Keys in Redis
  redis-cli HGETALL service:web
  redis-cli HGETALL slots:web
"
    );
}

#[test]
fn describe_a_pod_that_fits_no_node() {
    let mut pod = fixtures::pod("it's-me", Phase::Pending);
    (pod.node, pod.assignment, pod.reason) = (None, None, "Unschedulable".to_owned());
    let detail = "needs 2 GiB, 1.2 GiB free".to_owned();
    let nodes = vec![NodeRefusal { node: "worker1".to_owned(), detail }];
    pod.refusals = vec![Refusal { reason: "InsufficientMemory".to_owned(), count: 3, nodes }];
    let text = pods::describe(&pod, None, &[], now());
    for part in [
        "Phase:          pending: fits no node right now",
        "Reason:         Unschedulable\n",
        "Image:          nginx:1.27\n",
        "Why it does not fit\n  InsufficientMemory (3 nodes)\n    worker1: needs 2 GiB, 1.2 GiB free\n    \
         and 2 more nodes\n",
        r"redis-cli HGETALL pod:'it'\''s-me'",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(!text.contains("Node:") && !text.contains("Events"), "{text}");
}

#[test]
fn describe_an_external_worker() {
    let mut external = fixtures::node("old");
    external.kind = model::node::NodeKind::External;
    let text = nodes::describe(&external, &[fixtures::pod("djkf2345-9999", Phase::Running)], &[], now());
    for part in [
        "external worker (guest)",
        "cannot be fenced",
        "web-0 djkf2345 running on worker1",
        "redis-cli HGETALL node:old",
        "SMEMBERS cs:old",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn an_event_is_a_line_or_a_document() {
    let one = event(ObjectKind::Node, "worker1", "NodeDead");
    let show =
        |format| printed(format, |output| output.print_stream_item(&one, || events::line(&one)).unwrap());
    assert_eq!(show(OutputFormat::Table), "2026-01-31T00:01:01Z  NodeDead           node/worker1  it runs\n");
    assert_eq!(show(OutputFormat::Json).lines().count(), 1);
    assert!(show(OutputFormat::Yaml).starts_with("---\n"));
}

#[test]
fn events_about_an_object_are_the_latest_that_concern_it() {
    let all = || {
        vec![
            event(ObjectKind::Service, "web", "ServiceCreated"),
            event(ObjectKind::Pod, "p1", "Started"),
            event(ObjectKind::Pod, "p2", "Started"),
            event(ObjectKind::Node, "worker2", "NodeDead"),
        ]
    };
    let about = |kind, object, count| events::about(all(), kind, object, count).len();
    assert_eq!(about(ObjectKind::Service, "web", 10), 3);
    assert_eq!(about(ObjectKind::Service, "web", 2), 2);
    assert_eq!(about(ObjectKind::Pod, "p1", 10), 1);
    assert_eq!(about(ObjectKind::Node, "worker2", 10), 1);
    assert_eq!(about(ObjectKind::Pod, "web", 10), 0);
}

#[test]
fn status_shows_the_cluster_and_hides_unknown_counts() {
    let status = |connected: bool| -> api_types::StatusView {
        serde_json::from_value(serde_json::json!({
            "redis": {"connected": connected, "writable": true, "master": "127.0.0.1:6379", "detail": ""},
            "durability": null,
            "nodes": {"total": 3, "ready": 2, "cordoned": 0, "dead": 1}, "services": 4,
            "pods": {"pending": 1, "running": 12, "failed": 0},
            "queues": {"waiting": 0, "in_flight": 0, "unschedulable": 1, "dead": 0},
            "schedulers": 2, "problems": ["worker3 is dead"]
        }))
        .unwrap()
    };
    assert_eq!(
        status::describe(&status(true)),
        "Redis:          connected, master 127.0.0.1:6379
Schedulers:     2
Nodes:          2 of 3 ready, 1 dead
Services:       4
Pods:           1 pending, 12 running
Queues:         0 waiting, 0 in flight, 1 unschedulable, 0 dead letters

Problems
  worker3 is dead
"
    );
    let mut pausing = status(true);
    let pause = |no_deaths_for_seconds, no_starts_for_seconds| api_types::PauseView {
        master_changed_at: "2026-01-31T00:00:00Z".to_owned(),
        no_deaths_for_seconds,
        no_starts_for_seconds,
    };
    for (seen, expected) in [
        (pause(18, 3), "no node is declared dead for another 18 s, no pod starts for another 3 s"),
        (pause(5, 0), "no node is declared dead for another 5 s"),
    ] {
        pausing.pause = Some(seen);
        let line = format!("Pause:          Redis was restarted or its master changed: {expected}\n");
        assert!(status::describe(&pausing).contains(&line), "{}", status::describe(&pausing));
    }
    let mut weak = status(true);
    weak.redis.writable = false;
    weak.redis.server = "Valkey 9.1.2".to_owned();
    weak.redundancy = Some(api_types::RedundancyView {
        replicas: 2,
        replicas_attached: 0,
        sentinels: 3,
        sentinels_answering: 2,
        can_fail_over: Some(false),
    });
    let shown = status::describe(&weak);
    assert!(shown.contains("TAKES NO WRITES, master 127.0.0.1:6379 (Valkey 9.1.2)\n"), "{shown}");
    assert!(
        shown.contains("0 of 2 replicas attached, 2 of 3 Sentinels answer, NO FAILOVER POSSIBLE\n"),
        "{shown}"
    );
    let disconnected = status::describe(&status(false));
    assert!(disconnected.contains("NOT CONNECTED") && !disconnected.contains("Nodes"), "{disconnected}");
}

#[test]
fn empty_queues_of_nodes_are_shown_on_request() {
    let queues: api_types::QueuesView = serde_json::from_value(serde_json::json!({
        "waiting": 1, "in_flight": 0, "unschedulable": 0, "dead": 2,
        "nodes": [{"node": "worker1", "pending": 0, "starting": 1, "running": 0}]
    }))
    .unwrap();
    let text = printed(OutputFormat::Table, |output| {
        output.print_list(&queues::rows(&queues, false), "none").unwrap()
    });
    assert!(text.contains("rq:worker1   1") && !text.contains("pq:worker1"), "{text}");
    assert_eq!(queues::rows(&queues, true).len(), 7);
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}
