//! Broken input and broken keys block nothing else (invariants 7 and 13).

use model::ids::{PodId, SpecId, ValueName};
use model::pod::payload::Payload;
use model::value::{StoredValue, ValueBytes, ValueKind};
use store::QueueName;

use super::cluster::{Cluster, defaults, fast_repair, pushed};
use testkit::{eventually, need_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_payloads_become_dead_letters_and_valid_ones_are_placed() {
    need_redis!();
    let cluster = Cluster::new(defaults());
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
    eventually("every payload is placed or a dead letter", async || {
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let waiting = cluster.pending_counts(&[&node]).await;
        let is_done = lengths.dead == 500 && lengths.waiting + lengths.in_flight == 0 && waiting == [50];
        if is_done { Ok(()) } else { Err(format!("{lengths:?} {waiting:?}")) }
    })
    .await;
    let mut rejected: Vec<Vec<u8>> = Vec::new();
    for dead_letter in cluster.store.dead_letters(0, 1000).await.unwrap() {
        assert!(!dead_letter.reason.is_empty() && dead_letter.queue == "sq");
        rejected.push(dead_letter.payload);
    }
    rejected.sort();
    let mut bad = bad;
    bad.sort();
    assert_eq!(rejected, bad, "byte for byte");
}

/// On the third page of the loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_deleted_service_are_dropped_and_all_others_stay() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    let service = cluster.post(r#"{"name":"web","image":"nginx","replicas":2}"#, None).await;
    cluster.push("sq", pushed("mine"));
    eventually("all pods are on the node", async || {
        let waiting = cluster.pending_counts(&[&node]).await;
        if waiting == [3] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    let session = node.session();
    for raw in session.pop_more(3).await.unwrap() {
        let id = Payload::parse(raw.clone()).unwrap().id;
        session.reject(&raw, Some(&id), "denied").await.unwrap().unwrap();
    }
    for i in 0..1100 {
        cluster.push("dq", format!("not written by kubeleet {i}"));
    }
    cluster.store.delete_service(&service.name).await.unwrap();
    eventually("two dead letters are dropped", async || {
        let dead = cluster.store.queue_lengths().await.unwrap().dead;
        if dead == 1101 { Ok(()) } else { Err(dead) }
    })
    .await;
    let oldest = cluster.store.dead_letters(1100, 1).await.unwrap().remove(0);
    assert_eq!(oldest.payload, pushed("mine").into_bytes(), "it may be the only copy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_pod_record_affects_one_pod_and_a_broken_queue_of_a_node_is_moved_out_of_the_way() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let (bad, good) = (cluster.node("a-bad", 100).await, cluster.node("b-good", 100).await);
    let _: () = cluster.server.cli(&["SET", "pod:broken", "some text"]).await;
    let _: () = cluster.server.cli(&["SET", "pq:a-bad", "some text"]).await;
    for i in 0..20 {
        cluster.push("sq", pushed(&format!("p{i}")));
        if i == 10 {
            cluster.push("sq", pushed("broken"));
        }
    }
    let _scheduler = cluster.scheduler();
    eventually("the other pods are on the nodes", async || {
        let waiting = cluster.pending_counts(&[&bad, &good]).await;
        let dead = cluster.store.queue_lengths().await.unwrap().dead;
        if waiting.iter().sum::<u64>() == 20 && dead == 1 {
            Ok(())
        } else {
            Err(format!("{waiting:?} {dead}"))
        }
    })
    .await;
    let dead_letter = cluster.store.dead_letters(0, 1).await.unwrap().remove(0);
    assert_eq!(dead_letter.payload, pushed("broken").into_bytes());
    assert!(dead_letter.reason.contains("wrong type"), "{}", dead_letter.reason);

    let mut next = 0;
    eventually("the node gets pods again", async || {
        next += 1;
        cluster.push("sq", pushed(&format!("later{next}")));
        let waiting = cluster.pending_counts(&[&bad]).await;
        if waiting > vec![0] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    let moved: String = cluster.server.cli(&["GET", "broken:pq:a-bad"]).await;
    assert_eq!(moved, "some text");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_resumes_after_a_wrong_type_at_sq() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let node = cluster.node("a", 100).await;
    let _: () = cluster.server.cli(&["SET", "sq", "some text"]).await;
    let _scheduler = cluster.scheduler();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let _: u64 = cluster.server.cli(&["DEL", "sq"]).await;
    cluster.push("sq", pushed("p"));
    eventually("the pod is placed", async || {
        let waiting = cluster.pending_counts(&[&node]).await;
        if waiting == [1] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_specification_waits_with_a_message_until_it_is_back() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let node = cluster.node("a", 100).await;
    let service = cluster.post(r#"{"name":"web","image":"nginx","replicas":1}"#, None).await;
    let spec: &SpecId = &service.spec_id;
    let text: Vec<u8> = cluster.server.cli(&["GET", &format!("spec:{spec}")]).await;
    let _: u64 = cluster.server.cli(&["DEL", &format!("spec:{spec}")]).await;
    let _scheduler = cluster.scheduler();
    let id: PodId = eventually("the pod has a message", async || {
        let pod = cluster.pods("web").await.remove(0);
        if pod.message.contains("specification") { Ok(pod.id) } else { Err(format!("{pod:?}")) }
    })
    .await;
    assert_eq!(cluster.store.refusals(&id).await.unwrap().unwrap()[0].reason, "NoSpecification");
    let _: () = cluster.server.cli(&[&b"SET"[..], format!("spec:{spec}").as_bytes(), &text]).await;
    eventually("the pod is placed when the specification is back", async || {
        let waiting = cluster.queue(QueueName::Pending(node.name.clone())).await;
        if waiting.len() == 1 { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

/// A string, or a field of a hash.
const BROKEN_KEYS: &[(&str, Option<(&str, &str)>)] = &[
    ("pod:BAD", None),
    ("pod:BAD", Some(("phase", "Running"))),
    ("pod:BAD", Some(("replica", "99999999999999"))),
    ("service:bad", None),
    ("service:bad", Some(("spec_text", "{"))),
    ("service:bad", Some(("replicas", "many"))),
    ("slots:bad", None),
    ("slots:bad", Some(("first", "x"))),
    ("node:b-bad", None),
    ("node:b-bad", Some(("used_cpu", "much"))),
    ("node:b-bad", Some(("beat", "99999999999999999999"))),
    ("pq:b-bad", None),
    ("rq:b-bad", None),
    ("cs:b-bad", None),
    ("stop:b-bad", None),
    ("hb:c-external", None),
    ("fq:silent", None),
    ("services", None),
    ("nodes", None),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_key_of_one_object_is_broken_other_pods_are_placed_and_stopped() {
    need_redis!();
    let cluster = Cluster::new(super::cluster::fast_repair());
    let (good, _bad) = (cluster.node("a-good", 1000).await, cluster.node("b-bad", 1).await);
    cluster.post(r#"{"name":"bad","image":"nginx","replicas":2}"#, None).await;
    let bad_pod = cluster.pods("bad").await.remove(0).id;
    let _: u64 = cluster.server.cli(&["ZADD", "schedulers", "1", "silent"]).await;
    let _scheduler = cluster.scheduler();
    for (number, (key, field)) in BROKEN_KEYS.iter().enumerate() {
        let key = key.replace("BAD", bad_pod.as_str());
        let before: Option<Vec<u8>> = cluster.server.cli(&["DUMP", &key]).await;
        match field {
            None => drop(cluster.server.cli::<String>(&["SET", &key, "some text"]).await),
            Some((field, value)) => drop(cluster.server.cli::<u64>(&["HSET", &key, field, value]).await),
        }
        let name = format!("web{number}");
        let services = usize::from(key != "services");
        if services > 0 {
            cluster.post(&format!(r#"{{"name":"{name}","image":"nginx","replicas":1}}"#), None).await;
        }
        cluster.push("sq", pushed(&format!("pushed{number}")));
        let pushed = PodId::new(format!("pushed{number}")).unwrap();
        eventually(&format!("with {key} {field:?} other pods run, and stop when they must"), async || {
            good.work().await;
            let own = cluster.pods(&name).await;
            let pushed = cluster.store.pod(&pushed).await.unwrap();
            let is_running = |pod: &model::pod::PodRecord| pod.phase == model::pod::lifecycle::Phase::Running;
            let own_run = own.iter().all(is_running) && own.len() == services;
            if own_run && pushed.as_ref().is_some_and(is_running) {
                Ok(())
            } else {
                Err(format!("{own:?} {pushed:?}"))
            }
        })
        .await;
        let service = model::ids::ServiceName::new(&name).unwrap();
        if services > 0 {
            cluster.store.delete_service(&service).await.unwrap();
            eventually(&format!("with {key} {field:?} a deleted service ends"), async || {
                good.work().await;
                let left = cluster.store.service(&service).await.unwrap();
                if left.is_none() { Ok(()) } else { Err(format!("{left:?}")) }
            })
            .await;
        }
        let _: u64 = cluster.server.cli(&["DEL", &key]).await;
        if let Some(dump) = before {
            // A daemon may have written it again.
            let restore = [&b"RESTORE"[..], key.as_bytes(), b"0", &dump, b"REPLACE"];
            let _: String = cluster.server.cli(&restore).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_key_of_one_silent_node_does_not_keep_the_others_alive() {
    need_redis!();
    let cluster = Cluster::new(super::cluster::fast_failure_detection());
    let (bad, good) = (cluster.node("a-bad", 10).await, cluster.node("b-good", 10).await);
    // Otherwise a mass loss.
    let _lives = cluster.node("c-lives", 10).await;
    let _: String = cluster.server.cli(&["SET", "stop:a-bad", "some text"]).await;
    let _scheduler = cluster.scheduler();
    bad.fall_silent();
    good.fall_silent();
    eventually("the other node is declared dead", async || {
        let node = cluster.store.node(&good.name).await.unwrap();
        let is_dead = node.as_ref().is_some_and(|node| node.state == model::node::NodeState::Dead);
        if is_dead { Ok(()) } else { Err(format!("{node:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_record_is_broken_when_its_config_changes_is_restarted_once_the_record_is_repaired() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    for name in ["bad", "good"] {
        let service = format!(r#"{{"name":"{name}","image":"nginx","replicas":1,"configs":["db"]}}"#);
        cluster.post(&service, None).await;
    }
    for version in 1..=2 {
        let (name, content) = (ValueName::new("db").unwrap(), ValueBytes::new(vec![version]));
        let value = StoredValue::seal(ValueKind::Config, name, version.into(), &content, None).unwrap();
        cluster.store.put_value(&value, 10, None).await.unwrap();
    }
    let text: String = cluster.server.cli(&["HGET", "service:bad", "spec_text"]).await;
    let _: u64 = cluster.server.cli(&["HSET", "service:bad", "spec_text", "{"]).await;
    let _scheduler = cluster.scheduler();
    let has_generation_two = async |name: &str| {
        let generation: u64 = cluster.server.cli(&["HGET", &format!("service:{name}"), "generation"]).await;
        if generation == 2 { Ok(()) } else { Err(generation) }
    };
    eventually("the other service is restarted", async || has_generation_two("good").await).await;
    let _: u64 = cluster.server.cli(&["HSET", "service:bad", "spec_text", &text]).await;
    eventually("the repaired service is restarted", async || has_generation_two("bad").await).await;
    eventually("the change is forgotten", async || {
        let left: u64 = cluster.server.cli(&["HLEN", "rollouts"]).await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(has_generation_two("good").await, Ok(()), "it is restarted once");
}
