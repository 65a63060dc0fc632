//! Nodes that fall silent (invariant 4), and the brake.

use std::time::{Duration, Instant};

use common::lifecycle::Phase;
use common::node::NodeState;

use super::cluster::{Cluster, FakeNode, pushed, quick};
use super::need_redis;
use super::redis::eventually;

async fn state(cluster: &Cluster, node: &FakeNode) -> NodeState {
    cluster.store.node(&node.name).await.unwrap().unwrap().state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_dead_node_move_once_with_two_schedulers() {
    need_redis!("the_pods_of_a_dead_node_move_once_with_two_schedulers");
    let cluster = Cluster::new(quick());
    let doomed = cluster.node("doomed", 2000).await;
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1000}"#, None).await;
    eventually("all are on the first node", async || {
        let waiting = cluster.spread(&[&doomed]).await;
        if waiting == [1000] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    // It dies with pods in all three places.
    doomed.work_on(400).await;
    doomed.session().take_more(300).await.unwrap();
    let names = [doomed.name.clone()];
    let queues = cluster.store.node_queues(&names).await.unwrap()[0];
    assert_eq!((queues.running, queues.starting, queues.pending), (400, 300, 300));
    let survivor = cluster.node("survivor", 2000).await;
    let name = doomed.name.clone();
    drop(doomed);
    eventually("it is declared dead", async || {
        let node = cluster.store.node(&name).await.unwrap().unwrap();
        if node.state == NodeState::Dead { Ok(()) } else { Err(format!("{node:?}")) }
    })
    .await;
    let declared = Instant::now();
    eventually("all have moved", async || {
        let waiting = cluster.spread(&[&survivor]).await;
        if waiting == [1000] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    assert!(declared.elapsed() < Duration::from_secs(5), "{:?}", declared.elapsed());
    // Once: nothing comes after.
    let lengths = cluster.store.queue_lengths().await.unwrap();
    assert_eq!((lengths.waiting, lengths.in_flight, lengths.dead, lengths.unschedulable), (0, 0, 0, 0));
    let pods = cluster.pods("web").await;
    assert!(pods.iter().all(|pod| pod.phase == Phase::Assigned && pod.node.as_ref() == Some(&survivor.name)));
    let dead = cluster.store.node(&name).await.unwrap().unwrap();
    assert_eq!((dead.used.pods, cluster.spread(&[&survivor]).await), (0, vec![1000]));

    // Pushed to it later: drained as well.
    cluster.push(&format!("pq:{name}"), pushed("late"));
    eventually("it moves too", async || {
        let waiting = cluster.spread(&[&survivor]).await;
        if waiting == [1001] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_loss_moves_nothing_until_a_person_gives_nodes_up() {
    need_redis!("a_mass_loss_moves_nothing_until_a_person_gives_nodes_up");
    let cluster = Cluster::new(quick());
    let mut nodes = Vec::new();
    for i in 0..6 {
        nodes.push(cluster.node(&format!("n{i}"), 10).await);
    }
    let _scheduler = cluster.scheduler();
    let lost: Vec<FakeNode> = nodes.drain(..4).collect();
    lost.iter().for_each(FakeNode::fall_silent);
    // Twice as long as a single node would be given.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for node in &lost {
        assert_eq!(state(&cluster, node).await, NodeState::Alive);
    }
    assert!(cluster.store.cordon(&lost[0].name, true).await.unwrap());
    eventually("the one that was given up is dead", async || match state(&cluster, &lost[0]).await {
        NodeState::Dead => Ok(()),
        NodeState::Alive => Err("alive".into()),
    })
    .await;
    assert_eq!(state(&cluster, &lost[1]).await, NodeState::Alive);

    // Two come back: the one that does not is no mass any more.
    let (_a, _b) = (cluster.node("n2", 10).await, cluster.node("n3", 10).await);
    eventually("the last one is dead", async || match state(&cluster, &lost[1]).await {
        NodeState::Dead => Ok(()),
        NodeState::Alive => Err("alive".into()),
    })
    .await;
}
