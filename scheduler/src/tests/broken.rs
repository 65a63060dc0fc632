//! What somebody else broke holds up nobody else (invariant 7).

use common::ids::{PodId, SpecId};
use common::store::QueueName;

use super::cluster::{Cluster, calm, pushed};
use super::need_redis;
use super::redis::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_payloads_become_dead_letters_and_the_others_are_placed() {
    need_redis!("malformed_payloads_become_dead_letters_and_the_others_are_placed");
    let cluster = Cluster::new(calm());
    let node = cluster.node("a", 1000).await;
    let bad: Vec<Vec<u8>> = (0..500)
        .map(|i| match i % 5 {
            0 => format!("not json {i}").into_bytes(),
            1 => format!(r#"{{"name":"x","uuid":"b{i}","replica":0}}"#).into_bytes(),
            2 => vec![0xff, 0xfe, i as u8, (i / 256) as u8],
            3 => format!(r#"{{"name":"x","uuid":"b{i}","image":"nginx","replica":0,"memory":[]}}"#)
                .into_bytes(),
            _ => format!(r#"{{"name":"x","uuid":"b{i}","image":"nginx","replica":0,"spec":"none"}}"#)
                .into_bytes(),
        })
        .collect();
    for (i, payload) in bad.iter().enumerate() {
        cluster.push("sq", payload);
        if i % 10 == 0 {
            cluster.push("sq", pushed(&format!("good-{i}")));
        }
    }
    let _scheduler = cluster.scheduler();
    eventually("all are sorted", async || {
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let waiting = cluster.spread(&[&node]).await;
        let right = lengths.dead == 500 && lengths.waiting + lengths.in_flight == 0 && waiting == [50];
        if right { Ok(()) } else { Err(format!("{lengths:?} {waiting:?}")) }
    })
    .await;
    let mut letters: Vec<Vec<u8>> = Vec::new();
    for letter in cluster.store.letters(0, 1000).await.unwrap() {
        assert!(!letter.reason.is_empty() && letter.queue == "sq");
        letters.push(letter.payload);
    }
    letters.sort();
    let mut bad = bad;
    bad.sort();
    assert_eq!(letters, bad, "byte for byte");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_pod_record_stops_one_pod_and_a_broken_node_one_node() {
    need_redis!("a_broken_pod_record_stops_one_pod_and_a_broken_node_one_node");
    let cluster = Cluster::new(calm());
    let (bad, good) = (cluster.node("a-bad", 100).await, cluster.node("b-good", 100).await);
    let _: () = cluster.server.cli(&["SET", "pod:broken", "a text"]);
    let _: () = cluster.server.cli(&["SET", "pq:a-bad", "a text"]);
    for i in 0..20 {
        cluster.push("sq", pushed(&format!("p{i}")));
        if i == 10 {
            cluster.push("sq", pushed("broken"));
        }
    }
    let _scheduler = cluster.scheduler();
    eventually("the others are on the good node", async || {
        let waiting = cluster.spread(&[&good]).await;
        let dead = cluster.store.queue_lengths().await.unwrap().dead;
        if waiting == [20] && dead == 1 { Ok(()) } else { Err(format!("{waiting:?} {dead}")) }
    })
    .await;
    let letter = cluster.store.letters(0, 1).await.unwrap().remove(0);
    assert_eq!(letter.payload, pushed("broken").into_bytes());
    assert!(letter.reason.contains("wrong type"), "{}", letter.reason);

    // Repaired, the node gets pods again.
    let _: u64 = cluster.server.cli(&["DEL", "pq:a-bad"]);
    let mut next = 0;
    eventually("the repaired node gets pods", async || {
        next += 1;
        cluster.push("sq", pushed(&format!("later{next}")));
        let waiting = cluster.spread(&[&bad]).await;
        if waiting > vec![0] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_type_at_sq_is_waited_out() {
    need_redis!("a_wrong_type_at_sq_is_waited_out");
    let cluster = Cluster::new(calm());
    let node = cluster.node("a", 100).await;
    let _: () = cluster.server.cli(&["SET", "sq", "a text"]);
    let _scheduler = cluster.scheduler();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let _: u64 = cluster.server.cli(&["DEL", "sq"]);
    cluster.push("sq", pushed("p"));
    eventually("it goes on", async || {
        let waiting = cluster.spread(&[&node]).await;
        if waiting == [1] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_specification_is_gone_waits_and_says_so() {
    need_redis!("a_pod_whose_specification_is_gone_waits_and_says_so");
    let cluster = Cluster::new(calm());
    let node = cluster.node("a", 100).await;
    let service = cluster.post(r#"{"name":"web","image":"nginx","replicas":1}"#, None).await;
    let spec: &SpecId = &service.spec_id;
    let text: Vec<u8> = cluster.server.cli(&["GET", &format!("spec:{spec}")]);
    let _: u64 = cluster.server.cli(&["DEL", &format!("spec:{spec}")]);
    let _scheduler = cluster.scheduler();
    let id: PodId = eventually("it says so", async || {
        let pod = cluster.pods("web").await.remove(0);
        if pod.message.contains("specification") { Ok(pod.id) } else { Err(format!("{pod:?}")) }
    })
    .await;
    assert_eq!(cluster.store.refusals(&id).await.unwrap().unwrap()[0].reason, "NoSpecification");
    let _: () = cluster.server.cli(&[&b"SET"[..], format!("spec:{spec}").as_bytes(), &text]);
    eventually("it is placed when the specification is back", async || {
        let waiting = cluster.queue(QueueName::Pending(node.name.clone())).await;
        if waiting.len() == 1 { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}
