//! Drained nodes: pods move as planned, whichever scheduler lives, and nothing is stopped without a place.

use std::collections::BTreeMap;
use std::time::Duration;

use model::ids::NodeName;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::spec::PlacementProfile;
use pending::{Place, plan_drain};
use placement::PlacementPolicy;

use super::cluster::{Cluster, FakeNode, fast_repair};
use testkit::{eventually, need_redis};

pub(super) fn running(pods: &[PodRecord]) -> usize {
    pods.iter().filter(|pod| pod.phase == Phase::Running).count()
}

pub(super) fn places(pods: &[PodRecord]) -> BTreeMap<u32, NodeName> {
    pods.iter().filter_map(|pod| Some((pod.replica, pod.node.clone()?))).collect()
}

pub(super) async fn run_all(cluster: &Cluster, nodes: &[&FakeNode], service: &str, replicas: usize) {
    eventually("all pods run", async || {
        for node in nodes {
            node.work().await;
        }
        let pods = cluster.pods(service).await;
        if running(&pods) == replicas { Ok(()) } else { Err(format!("{} run", running(&pods))) }
    })
    .await;
}

/// At least `ready` of the replicas run all the time.
pub(super) async fn leave(
    cluster: &Cluster,
    nodes: &[&FakeNode],
    (service, replicas): (&str, usize),
    from: &NodeName,
    ready: usize,
) {
    eventually("no pod is left on the node", async || {
        for node in nodes {
            node.work().await;
        }
        let pods = cluster.pods(service).await;
        assert!(running(&pods) >= ready, "only {} run", running(&pods));
        let left = pods.iter().filter(|pod| pod.node.as_ref() == Some(from)).count();
        if left == 0 && running(&pods) == replicas && pods.len() == replicas {
            Ok(())
        } else {
            Err(format!("{left} are left"))
        }
    })
    .await;
}

async fn predicted(cluster: &Cluster, service: &str, from: &NodeName) -> BTreeMap<u32, NodeName> {
    let mut places = places(&cluster.pods(service).await);
    let plan = plan_drain(&cluster.store, &PlacementPolicy::default(), PlacementProfile::Default, from)
        .await
        .unwrap();
    for pod in plan.into_iter().filter(|pod| pod.record.name.as_str() == service) {
        let Place::On(to) = pod.place else { panic!("{pod:?}") };
        places.insert(pod.record.replica, to);
    }
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_drained_node_go_where_the_plan_says_although_the_scheduler_dies() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let (a, b, c) =
        (cluster.node("a", 100).await, cluster.node("b", 100).await, cluster.node("c", 100).await);
    let nodes = [&a, &b, &c];
    let first = cluster.scheduler();
    let web = r#"{"name":"web","image":"nginx","replicas":9,"update":{"monitor":0,"parallelism":2}}"#;
    // Two pods of a replica never run at once.
    let db = r#"{"name":"db","image":"nginx","replicas":8,"update":{"monitor":0},"on_disconnect":"stop"}"#;
    for (name, service, replicas) in [("web", web, 9), ("db", db, 8)] {
        cluster.post(service, None).await;
        run_all(&cluster, &nodes, name, replicas).await;
    }
    let expected = [predicted(&cluster, "web", &a.name).await, predicted(&cluster, "db", &a.name).await];
    cluster.store.drain_node(&a.name, None, false).await.unwrap();
    eventually("a pod has moved", async || {
        for node in &nodes {
            node.work().await;
        }
        let service = cluster.store.service(&"web".parse().unwrap()).await.unwrap().unwrap();
        if service.moves.is_empty() { Err("no moves") } else { Ok(()) }
    })
    .await;
    first.kill().await;
    let _second = cluster.scheduler();
    leave(&cluster, &nodes, ("web", 9), &a.name, 9).await;
    leave(&cluster, &nodes, ("db", 8), &a.name, 6).await;
    let found = [places(&cluster.pods("web").await), places(&cluster.pods("db").await)];
    assert_eq!(found, expected, "as planned");
    eventually("the moves are over and it is said", async || {
        let service = cluster.store.service(&"web".parse().unwrap()).await.unwrap().unwrap();
        let events = cluster.store.last_events(50).await.unwrap();
        let is_said = events.iter().any(|event| event.reason == "NodeDrained");
        if service.moves.is_empty() && is_said { Ok(()) } else { Err(format!("{:?}", service.moves)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_elsewhere_pods_stay_until_there_is_a_place_or_the_deadline() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let a = cluster.node("a", 4).await;
    let _scheduler = cluster.scheduler();
    let web = r#"{"name":"web","image":"nginx","replicas":4,"update":{"monitor":0}}"#;
    cluster.post(web, None).await;
    run_all(&cluster, &[&a], "web", 4).await;
    let before = places(&cluster.pods("web").await);
    cluster.store.drain_node(&a.name, None, false).await.unwrap();
    let b = cluster.node("b", 3).await;
    eventually("three pods have moved", async || {
        a.work().await;
        b.work().await;
        let pods = cluster.pods("web").await;
        let left = places(&pods).values().filter(|node| **node == a.name).count();
        if left == 1 && running(&pods) == 4 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await;
    assert_eq!(before.len(), 4);
    let plan = plan_drain(&cluster.store, &PlacementPolicy::default(), PlacementProfile::Default, &a.name)
        .await
        .unwrap();
    let why = plan[0].place.why_not().unwrap();
    assert_eq!((plan.len(), why.as_str()), (1, "no other node takes it: TooManyPods (b has 3 of 3 pods)"));

    cluster.store.drain_node(&a.name, Some(Duration::from_millis(1)), false).await.unwrap();
    eventually("the last one is stopped", async || {
        a.work().await;
        b.work().await;
        let pods = cluster.pods("web").await;
        let is_gone = places(&pods).values().all(|node| *node == b.name);
        if is_gone && running(&pods) == 3 { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncordoned_node_keeps_the_pods_that_it_still_has() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let (a, b) = (cluster.node("a", 100).await, cluster.node("b", 100).await);
    let _scheduler = cluster.scheduler();
    let web = r#"{"name":"web","image":"nginx","replicas":4,"update":{"monitor":3600}}"#;
    cluster.post(web, None).await;
    run_all(&cluster, &[&a, &b], "web", 4).await;
    cluster.store.drain_node(&a.name, None, false).await.unwrap();
    eventually("a successor has begun", async || {
        b.work().await;
        let count = cluster.pods("web").await.len();
        if count == 5 { Ok(()) } else { Err(count) }
    })
    .await;
    cluster.store.cordon(&a.name, false).await.unwrap();
    eventually("it is gone, and so are the moves", async || {
        a.work().await;
        b.work().await;
        let pods = cluster.pods("web").await;
        let service = cluster.store.service(&"web".parse().unwrap()).await.unwrap().unwrap();
        let is_over = service.moves.is_empty() && pods.len() == 4 && running(&pods) == 4;
        if is_over { Ok(()) } else { Err(format!("{} {:?}", pods.len(), service.moves)) }
    })
    .await;
    let on_a = places(&cluster.pods("web").await).values().filter(|node| **node == a.name).count();
    assert_eq!(on_a, 2);
}
