//! No node is overcommitted under concurrent requests (invariant 9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::invariants::{host_port_mismatches, overcommitted, violations};
use kubeleet_tests::{Cluster, ClusterTiming, Keyspace};
use serde_json::json;
use testkit::eventually::{check, eventually_within};

const SERVICES: usize = 500;
const PODS_PER_NODE: usize = 60;
/// Each node runs out of something else first. All of them have one pod for each of the host ports.
const NODES: [(&str, &str, &str); 6] = [
    ("w1", "KUBELEET_CPUS", "6"),
    ("w2", "KUBELEET_MEMORY", "3840MiB"),
    ("w3", "KUBELEET_PIDS", "600"),
    ("w4", "KUBELEET_MAX_PODS", "60"),
    ("w5", "KUBELEET_CPUS", "100"),
    ("w6", "KUBELEET_DISK", "60GiB"),
];
const ROOM: usize = NODES.len() * PODS_PER_NODE;

#[tokio::test(flavor = "multi_thread")]
async fn two_schedulers_place_of_500_racing_services_as_many_as_there_is_room_for() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let ample = [
        ("KUBELEET_CPUS", "100"),
        ("KUBELEET_MEMORY", "100GiB"),
        ("KUBELEET_PIDS", "100000"),
        ("KUBELEET_DISK", "1000GiB"),
        ("KUBELEET_MAX_PODS", "1000"),
    ];
    let _workers = NODES.map(|(name, short_of, amount)| {
        let mut settings = ample.to_vec();
        settings.retain(|(setting, _)| *setting != short_of);
        settings.push((short_of, amount));
        cluster.worker_with(name, "sim", &settings)
    });
    let http = api.http();
    http.nodes_ready(NODES.len()).await;
    let _schedulers = ["one", "two"].map(|name| cluster.scheduler_named(name));

    let is_over = Arc::new(AtomicBool::new(false));
    let looks = Arc::new(AtomicUsize::new(0));
    let mut connection = cluster.redis.connection().await.unwrap();
    let watcher = tokio::spawn({
        let (is_over, looks) = (is_over.clone(), looks.clone());
        async move {
            let mut wrong = Vec::new();
            while wrong.is_empty() && !is_over.load(Ordering::Relaxed) {
                let keyspace = Keyspace::read_over(&mut connection).await.unwrap();
                wrong =
                    [overcommitted, host_port_mismatches, violations].map(|check| check(&keyspace)).concat();
                looks.fetch_add(1, Ordering::Relaxed);
            }
            wrong
        }
    });
    let posts = (0..SERVICES).map(|number| {
        let http = http.clone();
        async move {
            let port = 20_000 + number % PODS_PER_NODE;
            let service = json!({
                "name": format!("s{number}"), "image": "x", "cpus": 0.1, "memory": "64MiB",
                "pids_limit": 10, "ports": [format!("{port}:80")],
                "volumes": [{"target": "/cache", "space": "1G"}],
            });
            http.post("/service?allow_partial=true", &service).await;
        }
    });
    futures_util::stream::iter(posts).buffer_unordered(50).collect::<Vec<()>>().await;

    eventually_within(Duration::from_secs(60), "what fits runs, and the rest knows why it waits", || async {
        let keyspace = cluster.keyspace().await;
        let phases = |phase: &str, reason: &str| {
            let pods = keyspace.below("pod:").map(|(id, _)| format!("pod:{id}"));
            let is_one = |key: &String| {
                keyspace.field(key, "phase") == phase && keyspace.field(key, "reason") == reason
            };
            pods.filter(is_one).count()
        };
        let counts = (phases("running", ""), phases("pending", "Unschedulable"));
        check(counts == (ROOM, SERVICES - ROOM), || format!("{counts:?}"))
    })
    .await;
    is_over.store(true, Ordering::Relaxed);
    assert_eq!(watcher.await.unwrap(), Vec::<String>::new());
    assert!(looks.load(Ordering::Relaxed) > 5, "the watcher looked while they were placed");
    let keyspace = cluster.keyspace().await;
    for (name, ..) in NODES {
        let used = keyspace.field(&format!("node:{}", cluster.node(name)), "used_pods");
        assert_eq!(used, PODS_PER_NODE.to_string(), "{name}");
    }
    let refused = json!({"name": "late", "image": "x", "memory": "64MiB", "ports": ["20000:80"]});
    let (status, problem) = http.send(reqwest::Method::POST, "/service", Some(&refused)).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (409, &json!("/problems/insufficient-ports")),
        "{problem}"
    );
}
