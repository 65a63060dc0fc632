//! Nodes that other programs serve.

use model::node::{NodeKind, NodeState};

use super::cluster::{Cluster, fast_failure_detection, pushed};
use testkit::{eventually, need_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_worker_gets_plain_pods_and_loses_them_when_it_dies() {
    need_redis!();
    let cluster = Cluster::new(fast_failure_detection());
    let _scheduler = cluster.scheduler();
    let writer = cluster.write_often("hb:external");
    let name = model::ids::NodeName::new("external").unwrap();
    eventually("the external worker is a node", async || match cluster.store.node(&name).await.unwrap() {
        Some(node) if node.kind == NodeKind::External && node.state == NodeState::Alive => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    cluster.push("sq", pushed("plain"));
    let payload: Vec<u8> = eventually("the external worker gets a plain pod", async || {
        let taken: Option<Vec<u8>> = cluster.server.cli(&["RPOPLPUSH", "pq:external", "rq:external"]).await;
        taken.ok_or_else(|| "nothing".to_owned())
    })
    .await;
    assert_eq!(payload, pushed("plain").into_bytes());
    let _: u64 = cluster.server.cli(&[&b"SADD"[..], b"cs:external", &payload[..]]).await;
    let _: u64 = cluster.server.cli(&[&b"LREM"[..], b"rq:external", b"1", &payload[..]]).await;
    let id = model::ids::PodId::new("plain").unwrap();
    eventually("the pod counts as running", async || {
        let pod = cluster.store.pod(&id).await.unwrap().unwrap();
        if pod.phase == model::pod::lifecycle::Phase::Running { Ok(()) } else { Err(format!("{pod:?}")) }
    })
    .await;
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1,"memory":"64MiB"}"#, None).await;
    eventually("the pod needs more than an external worker", async || {
        let pod = cluster.pods("web").await.remove(0);
        if pod.message.contains("NeedsMoreThanGuest") { Ok(()) } else { Err(pod.message) }
    })
    .await;

    let ours = cluster.node("ours", 10).await;
    drop(writer);
    eventually("both pods are on the other node", async || {
        let waiting = cluster.pending_counts(&[&ours]).await;
        if waiting == [2] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}
