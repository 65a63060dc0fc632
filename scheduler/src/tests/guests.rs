//! Nodes that other programs are.

use common::node::{NodeKind, NodeState};

use super::cluster::{Cluster, pushed, quick};
use super::need_redis;
use super::redis::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_joins_gets_plain_pods_and_loses_them_when_it_dies() {
    need_redis!("a_guest_joins_gets_plain_pods_and_loses_them_when_it_dies");
    let cluster = Cluster::new(quick());
    let _scheduler = cluster.scheduler();
    let writer = cluster.server.write_often("hb:guest");
    let guest = common::ids::NodeName::new("guest").unwrap();
    eventually("it is a node", async || match cluster.store.node(&guest).await.unwrap() {
        Some(node) if node.kind == NodeKind::Guest && node.state == NodeState::Alive => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    cluster.push("sq", pushed("plain"));
    let payload: Vec<u8> = eventually("it gets a plain pod", async || {
        let taken: Option<Vec<u8>> = cluster.server.cli(&["RPOPLPUSH", "pq:guest", "rq:guest"]);
        taken.ok_or_else(|| "nothing".to_owned())
    })
    .await;
    assert_eq!(payload, pushed("plain").into_bytes());
    let _: u64 = cluster.server.cli(&[&b"SADD"[..], b"cs:guest", &payload[..]]);
    let _: u64 = cluster.server.cli(&[&b"LREM"[..], b"rq:guest", b"1", &payload[..]]);
    let id = common::ids::PodId::new("plain").unwrap();
    eventually("it counts as running", async || {
        let pod = cluster.store.pod(&id).await.unwrap().unwrap();
        if pod.phase == common::lifecycle::Phase::Running { Ok(()) } else { Err(format!("{pod:?}")) }
    })
    .await;
    // More than an image: not there.
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1,"memory":"64MiB"}"#, None).await;
    eventually("it needs more than a guest", async || {
        let pod = cluster.pods("web").await.remove(0);
        if pod.message.contains("NeedsMoreThanGuest") { Ok(()) } else { Err(pod.message) }
    })
    .await;

    let ours = cluster.node("ours", 10).await;
    drop(writer);
    eventually("its pod moves", async || {
        let waiting = cluster.spread(&[&ours]).await;
        if waiting == [2] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}
