//! Preemption: pods of a lower priority are stopped for one that fits nowhere.

use model::ids::NodeName;
use model::node::Node;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;

use super::cluster::{Cluster, FakeNode, defaults, fast_failure_detection};
use testkit::{eventually, need_redis};

/// Two of its pods fill a node.
fn service(name: &str, replicas: u32, more: &str) -> String {
    format!(r#"{{"name":"{name}","image":"nginx","replicas":{replicas},"memory":"512MiB"{more}}}"#)
}

async fn pods(cluster: &Cluster, service: &str, phase: Phase) -> Vec<PodRecord> {
    let pods = cluster.pods(service).await.into_iter();
    pods.filter(|pod| pod.phase == phase).collect()
}

async fn runs(cluster: &Cluster, nodes: &[&FakeNode], service: &str, count: usize) -> Vec<PodRecord> {
    eventually(&format!("{count} of {service} run"), async || {
        for node in nodes {
            node.work().await;
        }
        let running = pods(cluster, service, Phase::Running).await;
        if running.len() == count { Ok(running) } else { Err(format!("{:?}", cluster.pods(service).await)) }
    })
    .await
}

async fn record(cluster: &Cluster, node: &NodeName) -> Node {
    cluster.store.node(node).await.unwrap().unwrap()
}

/// The one that keeps room for the pod of a service.
async fn nominated(cluster: &Cluster, nodes: &[&FakeNode], service: &str) -> NodeName {
    eventually("room is kept for it", async || {
        let pod = cluster.pods(service).await.remove(0);
        for node in nodes {
            let of_node = record(cluster, &node.name).await.nomination;
            if of_node.is_some_and(|nomination| nomination.pod == pod.id) {
                return Ok(node.name.clone());
            }
        }
        Err(format!("{pod:?}"))
    })
    .await
}

async fn events(cluster: &Cluster, reason: &str) -> usize {
    let all = cluster.store.last_events(1000).await.unwrap();
    all.iter().filter(|event| event.reason == reason).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_fits_nowhere_gets_the_room_of_one_of_a_lower_priority() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await, &cluster.node("b", 10).await];
    let _scheduler = cluster.scheduler();
    cluster.post(&service("low", 4, ""), None).await;
    runs(&cluster, &nodes, "low", 4).await;
    cluster.post(&service("equal", 1, r#","priority":0"#), None).await;
    cluster.post(&service("polite", 1, r#","priority":5,"preemption":"never""#), None).await;
    cluster.post(&service("high", 1, r#","priority":10"#), None).await;
    let high = runs(&cluster, &nodes, "high", 1).await;
    assert_eq!(runs(&cluster, &nodes, "low", 3).await.len(), 3);
    for waiting in ["equal", "polite"] {
        assert_eq!(pods(&cluster, waiting, Phase::Pending).await.len(), 1, "{waiting}");
    }
    let node = record(&cluster, high[0].node.as_ref().unwrap()).await;
    assert_eq!((node.nomination, node.used.pods, node.used.memory_bytes), (None, 2, 1 << 30));
    assert_eq!(events(&cluster, "PodPreempted").await, 1, "no more than needed");
    assert_eq!(events(&cluster, "PodNominated").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_stopped_while_another_one_that_makes_room_is_stopping() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await, &cluster.node("b", 10).await];
    let _scheduler = cluster.scheduler();
    let gone = cluster.post(&service("gone", 1, ""), None).await.name;
    cluster.post(&service("low", 3, ""), None).await;
    runs(&cluster, &nodes, "gone", 1).await;
    runs(&cluster, &nodes, "low", 3).await;
    cluster.store.delete_service(&gone).await.unwrap();
    eventually("it is being stopped", async || {
        let stopping = pods(&cluster, "gone", Phase::Stopping).await;
        if stopping.len() == 1 { Ok(()) } else { Err(format!("{stopping:?}")) }
    })
    .await;
    cluster.post(&service("high", 1, r#","priority":10"#), None).await;
    // Several attempts.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(events(&cluster, "PodPreempted").await, 0);
    runs(&cluster, &nodes, "high", 1).await;
    runs(&cluster, &nodes, "low", 3).await;
    assert_eq!(events(&cluster, "PodPreempted").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_keeps_its_min_available() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await, &cluster.node("b", 10).await];
    let _scheduler = cluster.scheduler();
    cluster.post(&service("low", 2, r#","min_available":2"#), None).await;
    cluster.post(&service("lower", 2, r#","priority":-1"#), None).await;
    runs(&cluster, &nodes, "low", 2).await;
    runs(&cluster, &nodes, "lower", 2).await;
    cluster.post(&service("high", 3, r#","priority":10"#), None).await;
    runs(&cluster, &nodes, "high", 1).await;
    // Several attempts later.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let counts = [
        runs(&cluster, &nodes, "low", 2).await.len(),
        runs(&cluster, &nodes, "lower", 1).await.len(),
        runs(&cluster, &nodes, "high", 1).await.len(),
    ];
    assert_eq!(counts, [2, 1, 1]);
    assert_eq!(events(&cluster, "PodPreempted").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_a_job_that_is_stopped_for_another_is_no_failure() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await];
    let _scheduler = cluster.scheduler();
    let job = r#"{"name":"job","image":"nginx","kind":"job","memory":"512MiB","job":{"completions":2,"parallelism":2}}"#;
    let job = cluster.post(job, Some(0)).await.name;
    runs(&cluster, &nodes, "job", 2).await;
    cluster.post(&service("high", 1, r#","priority":10"#), None).await;
    runs(&cluster, &nodes, "high", 1).await;
    runs(&cluster, &nodes, "job", 1).await;
    eventually("its index waits again", async || {
        let waiting = pods(&cluster, "job", Phase::Pending).await;
        if waiting.len() == 1 { Ok(()) } else { Err(format!("{:?}", cluster.pods("job").await)) }
    })
    .await;
    let progress = cluster.store.service(&job).await.unwrap().unwrap().progress;
    assert_eq!((progress.failures, progress.failure), (0, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_stop_no_more_than_needed() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await, &cluster.node("b", 10).await];
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    cluster.post(&service("low", 4, r#","min_available":0"#), None).await;
    runs(&cluster, &nodes, "low", 4).await;
    for name in ["high", "higher"] {
        cluster.post(&service(name, 1, r#","priority":10"#), None).await;
    }
    for name in ["high", "higher"] {
        runs(&cluster, &nodes, name, 1).await;
    }
    runs(&cluster, &nodes, "low", 2).await;
    assert_eq!(events(&cluster, "PodPreempted").await, 2);
    for node in nodes {
        let node = record(&cluster, &node.name).await;
        assert_eq!((node.nomination, node.used.pods), (None, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_room_waits_for_its_pod_although_the_scheduler_dies_and_others_want_it() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await, &cluster.node("b", 10).await];
    let scheduler = cluster.scheduler();
    cluster.post(&service("low", 4, ""), None).await;
    runs(&cluster, &nodes, "low", 4).await;
    cluster.post(&service("high", 1, r#","priority":10"#), None).await;
    let node = nominated(&cluster, &nodes, "high").await;
    scheduler.kill().await;
    // Its victim stops while no scheduler is there; then one takes another pod first.
    let low = runs(&cluster, &nodes, "low", 3).await;
    assert_eq!(record(&cluster, &node).await.used.pods, 1);
    cluster.post(&service("other", 1, ""), None).await;
    let _scheduler = cluster.scheduler();
    let high = runs(&cluster, &nodes, "high", 1).await;
    assert_eq!(high[0].node.as_ref(), Some(&node));
    assert_eq!(pods(&cluster, "other", Phase::Pending).await.len(), 1);
    let kept = runs(&cluster, &nodes, "low", 3).await;
    assert!(kept.iter().all(|pod| low.iter().any(|before| before.id == pod.id)), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_room_of_a_pod_that_is_deleted_is_given_up() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let nodes = [&cluster.node("a", 10).await];
    let _scheduler = cluster.scheduler();
    cluster.post(&service("low", 2, ""), None).await;
    runs(&cluster, &nodes, "low", 2).await;
    let high = cluster.post(&service("high", 1, r#","priority":10"#), None).await;
    nominated(&cluster, &nodes, "high").await;
    cluster.store.delete_service(&high.name).await.unwrap();
    eventually("the room is given up", async || {
        let kept = record(&cluster, &nodes[0].name).await.nomination;
        if kept.is_none() { Ok(()) } else { Err(format!("{kept:?}")) }
    })
    .await;
    runs(&cluster, &nodes, "low", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_room_is_on_a_node_that_dies_goes_elsewhere() {
    need_redis!();
    let cluster = Cluster::new(fast_failure_detection());
    let a = cluster.node("a", 10).await;
    let _scheduler = cluster.scheduler();
    cluster.post(&service("low", 2, ""), None).await;
    runs(&cluster, &[&a], "low", 2).await;
    cluster.post(&service("high", 1, r#","priority":10"#), None).await;
    nominated(&cluster, &[&a], "high").await;
    a.fall_silent();
    let b = cluster.node("b", 1).await;
    let high = runs(&cluster, &[&b], "high", 1).await;
    assert_eq!(high[0].node.as_ref(), Some(&b.name));
}
