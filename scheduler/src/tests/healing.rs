//! Services converge to their desired pods, whatever was lost (invariants 1 and 2).

use std::time::{Duration, Instant};

use model::ids::{NodeName, PodId, ServiceName};
use model::node::HeldPod;
use model::pod::lifecycle::Phase;
use store::PreparedImages;

use super::cluster::{Cluster, FakeNode, defaults, fast_repair, pushed};
use testkit::{eventually, need_redis};

async fn converge(cluster: &Cluster, nodes: &[&FakeNode], service: &str, replicas: usize, generation: u64) {
    eventually("the service has its pods", async || {
        for node in nodes {
            node.work().await;
        }
        let pods = cluster.pods(service).await;
        let running = pods.iter().filter(|p| p.phase == Phase::Running && p.generation == generation).count();
        let lengths = cluster.store.queue_lengths().await.unwrap();
        if running == replicas && pods.len() == replicas && lengths.waiting + lengths.in_flight == 0 {
            return Ok(());
        }
        Err(format!("{running} of {} {lengths:?}", pods.len()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_missing_pods_of_a_new_service_are_created_soon() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    for name in ["first", "second"] {
        let input = format!(r#"{{"name":"{name}","image":"nginx","replicas":4}}"#);
        let begun = Instant::now();
        cluster.post(&input, Some(1)).await;
        converge(&cluster, &[&node], name, 4, 1).await;
        assert!(begun.elapsed() < Duration::from_secs(15), "{name}: {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_are_created_scaled_replaced_and_deleted() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let (a, b) = (cluster.node("a", 100).await, cluster.node("b", 100).await);
    let nodes = [&a, &b];
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    // The API was killed after three of ten pods.
    cluster.post(r#"{"name":"web","image":"nginx","replicas":10}"#, Some(3)).await;
    converge(&cluster, &nodes, "web", 10, 1).await;

    let name = ServiceName::new("web").unwrap();
    cluster.store.scale_service(&name, 4).await.unwrap();
    converge(&cluster, &nodes, "web", 4, 1).await;
    let kept: Vec<u32> = cluster.pods("web").await.iter().map(|pod| pod.replica).collect();
    assert_eq!(kept, [0, 1, 2, 3]);

    cluster.post(r#"{"name":"web","image":"nginx:2","replicas":6}"#, Some(0)).await;
    converge(&cluster, &nodes, "web", 6, 2).await;
    assert!(cluster.pods("web").await.iter().all(|pod| pod.image == "nginx:2"));

    cluster.store.delete_service(&name).await.unwrap();
    eventually("the service is forgotten", async || {
        for node in &nodes {
            node.work().await;
        }
        match cluster.store.service(&name).await.unwrap() {
            None => Ok(()),
            Some(_) => Err(format!("{} pods", cluster.pods("web").await.len())),
        }
    })
    .await;
    for node in nodes {
        let used = cluster.store.node(&node.name).await.unwrap().unwrap().used;
        assert_eq!(used.pods, 0, "{}", node.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_payloads_records_and_slots_are_restored() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    cluster.post(r#"{"name":"web","image":"nginx","replicas":5}"#, None).await;
    let payload: Vec<u8> = cluster.server.cli(&["LPOP", "sq"]).await;
    assert!(!payload.is_empty());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    converge(&cluster, &[&node], "web", 5, 1).await;

    let pods = cluster.pods("web").await;
    let member: Vec<u8> = cluster.server.cli(&["SRANDMEMBER", "cs:a"]).await;
    let _: u64 = cluster.server.cli(&[&b"SREM"[..], b"cs:a", &member[..]]).await;
    eventually("the payload is in the set again", async || {
        let found: bool = cluster.server.cli(&[&b"SISMEMBER"[..], b"cs:a", &member[..]]).await;
        if found { Ok(()) } else { Err("missing") }
    })
    .await;
    let _: u64 = cluster.server.cli(&["DEL", &format!("pod:{}", pods[2].id)]).await;
    let _: u64 = cluster.server.cli(&["HDEL", "slots:web", "4"]).await;
    converge(&cluster, &[&node], "web", 5, 1).await;
    let after = cluster.pods("web").await;
    assert!(after[2].id != pods[2].id && after[4].id == pods[4].id && after[0].id == pods[0].id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assigned_pod_in_no_queue_is_queued_again() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"web","image":"nginx","replicas":3}"#, None).await;
    cluster.push("sq", pushed("mine"));
    eventually("all are placed", async || {
        let waiting = cluster.pending_counts(&[&node]).await;
        if waiting == [4] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    let _: u64 = cluster.server.cli(&["DEL", "pq:a"]).await;
    eventually("all are queued again", async || {
        let waiting = cluster.pending_counts(&[&node]).await;
        if waiting == [4] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_maxmemory_a_service_that_cannot_grow_keeps_no_other_from_being_deleted() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    cluster.post(r#"{"name":"a-grows","image":"nginx","replicas":5}"#, Some(2)).await;
    cluster.post(r#"{"name":"z-goes","image":"nginx","replicas":3}"#, Some(3)).await;
    let name = ServiceName::new("z-goes").unwrap();
    let () = cluster.server.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    cluster.store.delete_service(&name).await.unwrap();
    let _scheduler = cluster.scheduler();
    eventually("the service is gone", async || cluster.store.service(&name).await.unwrap().is_none()).await;
    assert_eq!(cluster.pods("a-grows").await.len(), 2);
    let () = cluster.server.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
    eventually("the other service grows", async || cluster.pods("a-grows").await.len() == 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_pods_are_listed_again_after_the_loss_of_any_list() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    cluster.post(r#"{"name":"web","image":"nginx","replicas":4}"#, None).await;
    // Not to the node: this fixture claims nothing without a record.
    cluster.push("sq", pushed("mine"));
    let _scheduler = cluster.scheduler();
    converge(&cluster, &[&node], "web", 4, 1).await;
    eventually("the pushed pod runs too", async || {
        node.work().await;
        let running: u64 = cluster.server.cli(&["SCARD", "cs:a"]).await;
        if running == 5 { Ok(()) } else { Err(running) }
    })
    .await;
    let before = cluster.pods("web").await;
    for key in ["slots:web", "pushed", "nodes", "beats", "hb:a", "cs:a"] {
        // Longer than the settle time.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let _: u64 = cluster.server.cli(&["DEL", key]).await;
        let name = ServiceName::new("web").unwrap();
        let _: u64 = cluster.server.cli(&["PUBLISH", "wake:reconcile", name.as_str()]).await;
        eventually("the key is back", async || {
            node.work().await;
            match cluster.server.cli::<u64>(&["EXISTS", key]).await {
                1 => Ok(()),
                _ => Err(key),
            }
        })
        .await;
        converge(&cluster, &[&node], "web", 4, 1).await;
        assert_eq!(cluster.pods("web").await.len(), 4, "{key}");
        let ids = |pods: &[model::pod::PodRecord]| pods.iter().map(|pod| pod.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&cluster.pods("web").await), ids(&before), "{key}");
        assert_eq!(cluster.server.cli::<u64>(&["SCARD", "cs:a"]).await, 5, "{key}");
        assert!(cluster.server.cli::<bool>(&["SISMEMBER", "pushed", "mine"]).await, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_slot_is_taken_is_stopped_and_pods_of_a_lost_service_are_kept() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    cluster.post(r#"{"name":"web","image":"nginx","replicas":2}"#, None).await;
    cluster.post(r#"{"name":"kept","image":"nginx","replicas":2}"#, None).await;
    let _scheduler = cluster.scheduler();
    converge(&cluster, &[&node], "web", 2, 1).await;
    converge(&cluster, &[&node], "kept", 2, 1).await;
    let pods = cluster.pods("web").await;
    let _: u64 = cluster.server.cli(&["DEL", "service:kept"]).await;
    let _: u64 = cluster.server.cli(&["COPY", &format!("pod:{}", pods[0].id), "pod:another"]).await;
    let _: u64 = cluster.server.cli(&["HSET", "slots:web", "0", "another"]).await;
    eventually("the pod without a slot is stopped", async || {
        node.work().await;
        match cluster.store.pod(&pods[0].id).await.unwrap().map(|pod| pod.phase) {
            Some(Phase::Stopping | Phase::Stopped) | None => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(cluster.pods("kept").await.iter().all(|pod| pod.phase == Phase::Running));
}

async fn running(cluster: &Cluster, service: &str) -> Vec<PodId> {
    let pods = cluster.pods(service).await.into_iter();
    let own = pods.filter(|pod| pod.phase == Phase::Running && pod.name.as_str() == service);
    own.map(|pod| pod.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_were_renamed_or_copied_by_hand_stop_no_pod() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    cluster.post(r#"{"name":"a","image":"nginx","replicas":3}"#, None).await;
    cluster.post(r#"{"name":"b","image":"nginx","replicas":4}"#, None).await;
    let _scheduler = cluster.scheduler();
    converge(&cluster, &[&node], "a", 3, 1).await;
    converge(&cluster, &[&node], "b", 4, 1).await;
    let before = (running(&cluster, "a").await, running(&cluster, "b").await);
    let (a0, b0) = (before.0[0].as_str(), before.1[0].as_str());
    for mistake in [
        &["RENAME", "slots:a", "slots:b"][..],
        &["COPY", "slots:b", "slots:a", "REPLACE"],
        &["HSET", "slots:b", "3", b0, "1", a0],
        &["HSET", "slots:b", "0+", b0],
        &["SADD", "pushed", a0],
    ] {
        let _: redis::Value = cluster.server.cli(mistake).await;
        for service in ["a", "b", ""] {
            let _: u64 = cluster.server.cli(&["PUBLISH", "wake:reconcile", service]).await;
        }
        eventually("all pods have their slots", async || {
            node.work().await;
            let now = (running(&cluster, "a").await, running(&cluster, "b").await);
            let slots: u64 = cluster.server.cli(&["HLEN", "slots:b"]).await;
            let pushed: u64 = cluster.server.cli(&["SCARD", "pushed"]).await;
            if now == before && slots == 4 && pushed == 0 {
                Ok(())
            } else {
                Err(format!("{mistake:?} {before:?} {now:?} {slots} {pushed}"))
            }
        })
        .await;
    }
    let lines: u64 = cluster.server.cli(&["SCARD", "cs:a"]).await;
    assert_eq!(lines, 7, "no pod was created, and none has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_wait_on_a_node_get_their_slots_back_and_count_there() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    cluster.post(r#"{"name":"a","image":"nginx","replicas":3}"#, None).await;
    cluster.post(r#"{"name":"b","image":"nginx","replicas":2}"#, None).await;
    let _scheduler = cluster.scheduler();
    eventually("all wait on the node", async || match cluster.pending_counts(&[&node]).await[..] {
        [5] => Ok(()),
        ref counts => Err(format!("{counts:?}")),
    })
    .await;
    let ids = async || -> Vec<PodId> { cluster.pods("b").await.into_iter().map(|pod| pod.id).collect() };
    let before = ids().await;
    let _: bool = cluster.server.cli(&["COPY", "slots:a", "slots:b", "REPLACE"]).await;
    eventually("they have their slots", async || {
        let now = ids().await;
        if now == before { Ok(()) } else { Err(format!("{before:?} {now:?}")) }
    })
    .await;
    tokio::time::sleep(3 * fast_repair().full_pass_interval).await;
    assert_eq!(cluster.pending_counts(&[&node]).await, [5], "no other pod was created");
    assert_eq!(cluster.store.node(&node.name).await.unwrap().unwrap().used.pods, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_service_that_has_lost_its_slots_gets_no_second_pods() {
    need_redis!();
    // The next full pass is 30 s away.
    let cluster = Cluster::new(defaults());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"first","image":"nginx","replicas":1}"#, Some(0)).await;
    converge(&cluster, &[&node], "first", 1, 1).await;
    cluster.post(r#"{"name":"web","image":"nginx","replicas":3}"#, None).await;
    converge(&cluster, &[&node], "web", 3, 1).await;
    let before = running(&cluster, "web").await;
    // A younger one lacks pods for other reasons.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _: u64 = cluster.server.cli(&["DEL", "slots:web"]).await;
    eventually("its pods have their slots", async || {
        let _: u64 = cluster.server.cli(&["PUBLISH", "wake:reconcile", "web"]).await;
        node.work().await;
        let now = running(&cluster, "web").await;
        if now == before { Ok(()) } else { Err(format!("{before:?} {now:?}")) }
    })
    .await;
    let lines: u64 = cluster.server.cli(&["SCARD", "cs:a"]).await;
    assert_eq!(lines, 4, "no pod was created, and none has ended");
}

/// Filling the slots would start pods twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_created_in_a_slot_that_a_live_node_holds() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    for name in ["web", "db"] {
        cluster.post(&format!(r#"{{"name":"{name}","image":"nginx","replicas":3}}"#), None).await;
    }
    let _scheduler = cluster.scheduler();
    converge(&cluster, &[&node], "web", 3, 1).await;
    converge(&cluster, &[&node], "db", 3, 1).await;
    // A second pass begins after the first one has seen the pods run.
    for _ in 0..2 {
        let _: u64 = cluster.server.cli(&["SREM", "nodes", "a"]).await;
        eventually("a pass lists the node again", async || {
            let names = cluster.store.node_names().await.unwrap();
            if names.is_empty() { Err("not listed") } else { Ok(()) }
        })
        .await;
    }
    let mut held = Vec::new();
    for name in ["web", "db"] {
        for pod in cluster.pods(name).await {
            let _: u64 = cluster.server.cli(&["DEL", &format!("pod:{}", pod.id)]).await;
            held.push(HeldPod {
                service: ServiceName::new(name).unwrap(),
                replica: pod.replica,
                pod: pod.id,
            });
        }
    }
    let _: u64 = cluster.server.cli(&["DEL", "slots:db", "cs:a"]).await;
    let hint = async || {
        for service in ["web", "db"] {
            let _: u64 = cluster.server.cli(&["PUBLISH", "wake:reconcile", service]).await;
        }
    };
    hint().await;
    let say = async |part: &str| {
        eventually("both services say why they wait", async || {
            hint().await;
            for name in ["web", "db"] {
                let service = cluster.store.service(&ServiceName::new(name).unwrap()).await.unwrap().unwrap();
                let held = service.rollout.held.unwrap_or_default();
                if !held.contains(part) {
                    return Err(format!("{name}: {held}"));
                }
            }
            Ok(())
        })
        .await;
    };
    say("a node may run the pods").await;
    node.hold(&held).await;
    say("node a has containers whose records are lost").await;
    tokio::time::sleep(fast_repair().lost_record_wait).await;
    hint().await;
    say("node a has containers whose records are lost").await;
    let waiting = cluster.store.queue_lengths().await.unwrap().waiting;
    assert_eq!((waiting, cluster.pending_counts(&[&node]).await), (0, vec![0]), "nothing was created");
    assert!(cluster.pods("web").await.is_empty() && cluster.pods("db").await.is_empty());
    // By an operator.
    node.hold(&held[3..]).await;
    converge(&cluster, &[&node], "web", 3, 1).await;
    assert!(cluster.pods("db").await.is_empty());
    node.hold(&[]).await;
    converge(&cluster, &[&node], "db", 3, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drifted_sums_are_corrected_and_replaced_specifications_expire() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    cluster.post(r#"{"name":"web","image":"nginx","replicas":2}"#, None).await;
    let _scheduler = cluster.scheduler();
    converge(&cluster, &[&node], "web", 2, 1).await;
    let first = cluster.pods("web").await[0].spec.clone().unwrap();
    for (field, value) in [("used_pods", "90"), ("used_cpu", "-500"), ("used_memory", "99")] {
        let _: u64 = cluster.server.cli(&["HSET", "node:a", field, value]).await;
    }
    eventually("the sums are corrected", async || {
        let used: Vec<String> =
            cluster.server.cli(&["HMGET", "node:a", "used_pods", "used_cpu", "used_memory"]).await;
        if used == ["2", "0", "0"] { Ok(()) } else { Err(format!("{used:?}")) }
    })
    .await;

    let ttl = async || cluster.server.cli::<i64>(&["TTL", &format!("spec:{first}")]).await;
    cluster.post(r#"{"name":"web","image":"nginx:2","replicas":2}"#, Some(0)).await;
    converge(&cluster, &[&node], "web", 2, 2).await;
    eventually("the former specification expires", async || match ttl().await {
        1.. => Ok(()),
        other => Err(other),
    })
    .await;
    let current = cluster.pods("web").await[0].spec.clone().unwrap();
    assert_eq!(cluster.server.cli::<i64>(&["TTL", &format!("spec:{current}")]).await, -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undone_change_replaces_only_the_pods_that_were_changed() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    let web = |image: &str| {
        format!(
            r#"{{"name":"web","image":"{image}","replicas":8,"update":{{"order":"stop-first","monitor":0}}}}"#
        )
    };
    cluster.post(&web("nginx"), None).await;
    converge(&cluster, &[&node], "web", 8, 1).await;
    let before = cluster.pods("web").await;
    cluster.post(&web("nginx:2"), Some(0)).await;
    let changed = cluster.store.service(&ServiceName::new("web").unwrap()).await.unwrap().unwrap();
    eventually("the replacement has begun", async || {
        // No worker reports it.
        let (store, name) = (&cluster.store, NodeName::new("a").unwrap());
        store.note_prepared(&changed.spec_id, &name, &PreparedImages::Ready).await.unwrap();
        let pods = cluster.pods("web").await;
        let stopping = pods.iter().filter(|pod| pod.phase == Phase::Stopping).count();
        if stopping == 2 { Ok(()) } else { Err(stopping) }
    })
    .await;
    cluster.post(&web("nginx"), Some(0)).await;
    converge(&cluster, &[&node], "web", 8, 3).await;
    let after = cluster.pods("web").await;
    let kept = before.iter().filter(|pod| after.iter().any(|other| other.id == pod.id)).count();
    assert_eq!(kept, 6, "{after:?}");
    let service = cluster.store.service(&ServiceName::new("web").unwrap()).await.unwrap().unwrap();
    assert!(after.iter().all(|pod| pod.spec.as_ref() == Some(&service.spec_id)), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_pods_that_ended_a_day_ago_are_forgotten() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let now = cluster.store.redis_now().await.unwrap();
    for (id, phase, since) in [
        ("old", "succeeded", now - 25 * 3_600_000),
        ("recent", "failed", now - 23 * 3_600_000),
        ("ahead", "failed", now + 48 * 3_600_000),
    ] {
        let (key, since) = (format!("pod:{id}"), since.to_string());
        let fields = ["HSET", &key, "name", "job", "phase", phase, "since", &since, "image", "nginx"];
        let _: u64 = cluster.server.cli(&fields).await;
        let _: u64 = cluster.server.cli(&["SADD", "pushed", id]).await;
    }
    let _: u64 = cluster.server.cli(&["SADD", "pushed", "without-a-record"]).await;
    let _scheduler = cluster.scheduler();
    eventually("the old ones are forgotten", async || {
        let mut left: Vec<String> = cluster.server.cli(&["SMEMBERS", "pushed"]).await;
        left.sort();
        if left == ["ahead", "recent"] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert!(cluster.server.cli::<i64>(&["TTL", "pod:old"]).await > 0);
    assert_eq!(cluster.server.cli::<i64>(&["TTL", "pod:recent"]).await, -1);
}
