//! An external worker, like kubeleet's first version.

use std::sync::Arc;
use std::time::Duration;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

struct ExternalWorker {
    started: Arc<Mutex<Vec<String>>>,
    loops: [tokio::task::JoinHandle<()>; 2],
}

impl ExternalWorker {
    async fn start(cluster: &Cluster, name: &str) -> Self {
        let started: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut heartbeat_connection = cluster.redis.connection().await.unwrap();
        let heartbeat = format!("hb:{name}");
        let send_heartbeats = async move {
            // Its clock is years off: only a change of the value counts.
            for tick in 0.. {
                let time = format!("1999-12-31T23:59:{tick}");
                let () = redis::cmd("SET")
                    .arg(&heartbeat)
                    .arg(time)
                    .query_async(&mut heartbeat_connection)
                    .await
                    .unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        let mut queue_connection = cluster.redis.connection().await.unwrap();
        let [pq, rq, cs] = ["pq", "rq", "cs"].map(|prefix| format!("{prefix}:{name}"));
        let containers = started.clone();
        let serve_queues = async move {
            loop {
                let mut pop = redis::cmd("BRPOPLPUSH");
                let payload: Option<String> =
                    pop.arg(&pq).arg(&rq).arg(1).query_async(&mut queue_connection).await.unwrap();
                let Some(payload) = payload else { continue };
                let pod: Value = serde_json::from_str(&payload).unwrap();
                let fields = ["name", "uuid", "image"].map(|field| pod[field].as_str().unwrap().to_owned());
                assert!(pod["replica"].is_u64());
                containers.lock().push(fields[1].clone());
                let () = redis::cmd("SADD")
                    .arg(&cs)
                    .arg(&payload)
                    .query_async(&mut queue_connection)
                    .await
                    .unwrap();
                let mut remove = redis::cmd("LREM");
                let () =
                    remove.arg(&rq).arg(1).arg(&payload).query_async(&mut queue_connection).await.unwrap();
            }
        };
        Self { started, loops: [tokio::spawn(send_heartbeats), tokio::spawn(serve_queues)] }
    }

    fn kill(&self) {
        self.loops.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_worker_gets_pods_and_they_move_when_its_heartbeat_stops() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.worker("w1", "sim");
    let http = api.http();
    let name = cluster.node("external");
    let external = ExternalWorker::start(&cluster, &name).await;
    eventually_within(SOON, "the external worker is a node", || async {
        let nodes = http.get("/node").await;
        let found = nodes["items"].as_array().unwrap().iter().find(|node| node["name"] == *name).cloned();
        let node = found.unwrap_or_default();
        let is_external = node["kind"] == "guest" && node["fenceable"] == false && node["ready"] == true;
        check(is_external && nodes["items"].as_array().unwrap().len() == 2, || nodes.to_string())
    })
    .await;
    http.nodes_ready(2).await;
    http.post("/service", &json!({"name": "web", "image": "nginx", "replicas": 6})).await;
    http.runs(SOON, "web", 6).await;
    let started = external.started.lock().clone();
    // It does not report the pressure of this machine: it may get all pods.
    assert!(!started.is_empty(), "it gets a share of the pods");
    http.post(
        "/service",
        &json!({"name": "env", "image": "nginx", "environment": {"A": "b"}, "replicas": 4}),
    )
    .await;
    http.runs(SOON, "env", 4).await;
    let pods = http.pods("service=env").await;
    assert!(pods.iter().all(|pod| pod["node"] == cluster.node("w1")), "{pods:?}");
    external.kill();
    eventually_within(SOON, "its pods move", || async {
        let left: usize = cluster.redis.cli(&["SCARD", &format!("cs:{name}")]).await;
        check(left == 0, || format!("{left} left"))
    })
    .await;
    http.runs(SOON, "web", 6).await;
    let pods = http.pods("service=web").await;
    assert!(pods.iter().all(|pod| pod["node"] == cluster.node("w1")), "{pods:?}");
    let uuids: Vec<_> = pods.iter().map(|pod| pod["uuid"].as_str().unwrap().to_owned()).collect();
    assert!(started.iter().all(|uuid| uuids.contains(uuid)), "the same pods have moved");
}
