//! Global services: one pod on each eligible node, on its node, while nodes come, die, return and change.

use std::collections::BTreeMap;

use model::ids::NodeName;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use store::PreparedImages;

use super::cluster::{Cluster, FakeNode, fast_repair};
use testkit::{eventually, need_redis};

fn places(pods: &[PodRecord]) -> BTreeMap<u32, String> {
    let node = |pod: &PodRecord| pod.node.as_ref().map(NodeName::to_string).unwrap_or_default();
    pods.iter().map(|pod| (pod.replica, node(pod))).collect()
}

/// All run, in one generation, on these nodes by their numbers; never are two on one node.
async fn become_of(cluster: &Cluster, nodes: &[&FakeNode], generation: u64, expected: &[(u32, &FakeNode)]) {
    let expected: BTreeMap<u32, String> =
        expected.iter().map(|(number, node)| (*number, node.name.to_string())).collect();
    eventually("each eligible node has its pod", async || {
        for node in nodes {
            node.work().await;
        }
        let pods = cluster.pods("agent").await;
        let mut on: Vec<&NodeName> = pods.iter().filter_map(|pod| pod.node.as_ref()).collect();
        on.sort();
        assert!(on.windows(2).all(|two| two[0] != two[1]), "two pods on a node: {on:?}");
        let are_good = pods.iter().all(|pod| pod.phase == Phase::Running && pod.generation == generation);
        if are_good && places(&pods) == expected { Ok(()) } else { Err(format!("{:?}", places(&pods))) }
    })
    .await;
}

async fn wanted(cluster: &Cluster) -> u32 {
    cluster.store.service(&"agent".parse().unwrap()).await.unwrap().unwrap().wanted_pods()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_global_service_has_a_pod_on_each_eligible_node_whatever_becomes_of_the_nodes() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let (a, b) = (cluster.node("a", 10).await, cluster.node("b", 10).await);
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    let agent = r#"{"name":"agent","image":"nginx:1","mode":"global","update":{"monitor":0},
        "placement":{"constraints":["role != db"]}}"#;
    let service = cluster.post(agent, None).await;
    assert_eq!((service.replicas, service.members.are_known()), (0, false));
    become_of(&cluster, &[&a, &b], 1, &[(0, &a), (1, &b)]).await;
    let before = cluster.pods("agent").await;

    let c = cluster.node("c", 10).await;
    become_of(&cluster, &[&a, &b, &c], 1, &[(0, &a), (1, &b), (2, &c)]).await;
    cluster.store.cordon(&b.name, true).await.unwrap();
    become_of(&cluster, &[&a, &b, &c], 1, &[(0, &a), (1, &b), (2, &c)]).await;
    let label = |value: Option<&str>| [("role".to_owned(), value.map(str::to_owned))].into();
    cluster.store.label_node(&a.name, &label(Some("db"))).await.unwrap();
    become_of(&cluster, &[&a, &b, &c], 1, &[(1, &b), (2, &c)]).await;
    assert_eq!(wanted(&cluster).await, 2);
    cluster.store.label_node(&a.name, &label(None)).await.unwrap();
    become_of(&cluster, &[&a, &b, &c], 1, &[(0, &a), (1, &b), (2, &c)]).await;

    // The same description changes nothing, and another one replaces the pods, but not on the cordoned node.
    cluster.post(agent, None).await;
    assert_eq!(wanted(&cluster).await, 3);
    let second = cluster.post(&agent.replace("nginx:1", "nginx:2"), None).await;
    for node in [&a, &b, &c] {
        cluster.store.note_prepared(&second.spec_id, &node.name, &PreparedImages::Ready).await.unwrap();
    }
    eventually("two pods are replaced", async || {
        for node in [&a, &b, &c] {
            node.work().await;
        }
        let pods = cluster.pods("agent").await;
        let of = |number| pods.iter().find(|pod| pod.replica == number).map(|pod| pod.generation);
        let service = cluster.store.service(&"agent".parse().unwrap()).await.unwrap().unwrap();
        let held = service.rollout.held.unwrap_or_default();
        let is_so = (of(0), of(1), of(2)) == (Some(2), Some(1), Some(2)) && held.contains("b is cordoned");
        if is_so { Ok(()) } else { Err(format!("{pods:?} {held}")) }
    })
    .await;
    let kept = cluster.pods("agent").await.into_iter().find(|pod| pod.replica == 1).unwrap();
    assert!(before.iter().any(|pod| pod.id == kept.id));
    cluster.store.cordon(&b.name, false).await.unwrap();
    become_of(&cluster, &[&a, &b, &c], 2, &[(0, &a), (1, &b), (2, &c)]).await;

    c.fall_silent();
    become_of(&cluster, &[&a, &b], 2, &[(0, &a), (1, &b)]).await;
    assert_eq!(wanted(&cluster).await, 2);
    let again = cluster.node("c", 10).await;
    become_of(&cluster, &[&a, &b, &again], 2, &[(0, &a), (1, &b), (2, &again)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn global_pods_leave_a_drained_node_last_and_nowhere_else() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let (a, b) = (cluster.node("a", 10).await, cluster.node("b", 10).await);
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"agent","image":"nginx","mode":"global"}"#, None).await;
    become_of(&cluster, &[&a, &b], 1, &[(0, &a), (1, &b)]).await;
    let web = r#"{"name":"web","image":"nginx","replicas":4,"update":{"monitor":0}}"#;
    cluster.post(web, None).await;
    let leave = async |may_be_there: bool| {
        eventually("the pods of web run elsewhere", async || {
            for node in [&a, &b] {
                node.work().await;
            }
            let pods = cluster.pods("web").await;
            let on_a = pods.iter().filter(|pod| pod.node.as_ref() == Some(&a.name)).count();
            let has_agent = cluster.pods("agent").await.iter().any(|pod| pod.node.as_ref() == Some(&a.name));
            assert!(has_agent || on_a == 0, "the agent left before the {on_a} others");
            let running = pods.iter().filter(|pod| pod.phase == Phase::Running).count();
            let is_so = running == 4 && pods.len() == 4 && (may_be_there || on_a == 0);
            if is_so { Ok(()) } else { Err(format!("{running} run, {on_a} there")) }
        })
        .await;
    };
    leave(true).await;
    cluster.store.drain_node(&a.name, None, false).await.unwrap();
    leave(false).await;
    become_of(&cluster, &[&a, &b], 1, &[(1, &b)]).await;
    eventually("it is said", async || {
        let events = cluster.store.last_events(50).await.unwrap();
        if events.iter().any(|event| event.reason == "NodeDrained") { Ok(()) } else { Err("not yet") }
    })
    .await;
    cluster.store.cordon(&a.name, false).await.unwrap();
    become_of(&cluster, &[&a, &b], 1, &[(0, &a), (1, &b)]).await;
}
