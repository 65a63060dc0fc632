//! A program that is not ours serves in the cluster: it knows four fields, `hb:`, `pq:`, `rq:` and `cs:`, as kubeleet's
//! first version did.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::wait::that;
use kubeleet_tests::{Cluster, Timing, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

/// The guest: its whole worker.
struct Guest {
    started: Arc<Mutex<Vec<String>>>,
    loops: [tokio::task::JoinHandle<()>; 2],
}

impl Guest {
    async fn start(cluster: &Cluster, name: &str) -> Self {
        let started: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut beating = cluster.redis.connection().await.unwrap();
        let heartbeat = format!("hb:{name}");
        let beat = async move {
            // A clock of its own, years off: only that the value changes counts.
            for tick in 0.. {
                let time = format!("1999-12-31T23:59:{tick}");
                let () = redis::cmd("SET").arg(&heartbeat).arg(time).query_async(&mut beating).await.unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        let mut working = cluster.redis.connection().await.unwrap();
        let [pq, rq, cs] = ["pq", "rq", "cs"].map(|prefix| format!("{prefix}:{name}"));
        let containers = started.clone();
        let work = async move {
            loop {
                let mut pop = redis::cmd("BRPOPLPUSH");
                let payload: Option<String> =
                    pop.arg(&pq).arg(&rq).arg(1).query_async(&mut working).await.unwrap();
                let Some(payload) = payload else { continue };
                let pod: Value = serde_json::from_str(&payload).unwrap();
                let fields = ["name", "uuid", "image"].map(|field| pod[field].as_str().unwrap().to_owned());
                assert!(pod["replica"].is_u64());
                containers.lock().unwrap().push(fields[1].clone());
                let () = redis::cmd("SADD").arg(&cs).arg(&payload).query_async(&mut working).await.unwrap();
                let mut remove = redis::cmd("LREM");
                let () = remove.arg(&rq).arg(1).arg(&payload).query_async(&mut working).await.unwrap();
            }
        };
        Self { started, loops: [tokio::spawn(beat), tokio::spawn(work)] }
    }

    fn die(&self) {
        self.loops.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_gets_pods_and_they_move_when_its_beat_stops() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.worker("w1", "sim");
    let http = api.http();
    let name = cluster.node("guest");
    let guest = Guest::start(&cluster, &name).await;
    eventually(SOON, "the guest is a node", || async {
        let nodes = http.get("/node").await;
        let found = nodes["items"].as_array().unwrap().iter().find(|node| node["name"] == *name).cloned();
        let guest = found.unwrap_or_default();
        let known = guest["kind"] == "guest" && guest["fenceable"] == false && guest["ready"] == true;
        that(known && nodes["items"].as_array().unwrap().len() == 2, || nodes.to_string())
    })
    .await;
    http.nodes_ready(2).await;
    http.post("/service", &json!({"name": "web", "image": "nginx", "replicas": 6})).await;
    http.runs(SOON, "web", 6).await;
    let started = guest.started.lock().unwrap().clone();
    // Our own worker feels the pressure of this machine, which the guest does not report: it may get them all.
    assert!(!started.is_empty(), "it gets its share");
    // What needs more than an image is not for it.
    http.post(
        "/service",
        &json!({"name": "env", "image": "nginx", "environment": {"A": "b"}, "replicas": 4}),
    )
    .await;
    http.runs(SOON, "env", 4).await;
    let pods = http.pods("service=env").await;
    assert!(pods.iter().all(|pod| pod["node"] == cluster.node("w1")), "{pods:?}");
    guest.die();
    eventually(SOON, "its pods move", || async {
        let left: usize = cluster.redis.cli(&["SCARD", &format!("cs:{name}")]).await;
        that(left == 0, || format!("{left} left"))
    })
    .await;
    http.runs(SOON, "web", 6).await;
    let pods = http.pods("service=web").await;
    assert!(pods.iter().all(|pod| pod["node"] == cluster.node("w1")), "{pods:?}");
    let uuids: Vec<_> = pods.iter().map(|pod| pod["uuid"].as_str().unwrap().to_owned()).collect();
    assert!(started.iter().all(|uuid| uuids.contains(uuid)), "the same pods, not others");
}
