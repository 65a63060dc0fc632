//! Workers with an emptied Redis, another one, or another cluster's containers.

use std::sync::Arc;

use daemon::clock::{BootClock, Clock};
use engine::testing::identity;
use engine::{ContainerRequest, Identity, Runtime};
use model::ids::{ClusterId, NodeName};
use model::pod::lifecycle::Phase;
use model::spec::{ContainerSpec, OnDisconnect};
use store::HoldReason;
use store::saved_state::{SavedFile, SavedState};

use super::rig::{Rig, eventually, payload, payload_with};
use crate::fencing::lease_file::{self, SavedLease};

const STOP: &str = r#""on_disconnect":"stop""#;

async fn until_held(rig: &Rig, count: usize) {
    eventually(&format!("{count} workers hold"), || async {
        rig.store.held_nodes().await.unwrap().len() == count
    })
    .await;
}

async fn until_lease_is_prolonged(rig: &Rig) {
    let until = BootClock.now().plus(3 * rig.config.timing.fence_after);
    let boot_id = lease_file::boot_id().unwrap();
    eventually("the lease goes on", || async {
        let saved = lease_file::read(&lease_file::path(&rig.config), &boot_id);
        matches!(saved, SavedLease::Lease(lease) if lease.deadline > until)
    })
    .await;
}

async fn run_two(rig: &Rig) {
    rig.push(&payload("keep", "alpine"));
    rig.push(&payload_with("stop", "alpine", STOP));
    for pod in ["keep", "stop"] {
        rig.until(pod, Phase::Running).await;
    }
}

#[tokio::test]
async fn an_emptied_redis_stops_nothing_and_its_data_come_back_without_a_restart() {
    let Some(rig) = Rig::new("an_emptied_redis_stops_nothing_and_its_data_come_back_without_a_restart")
    else {
        return;
    };
    let worker = rig.worker();
    run_two(&rig).await;
    let before = (rig.containers("keep").await, rig.containers("stop").await);
    // Equals FLUSHALL for the worker's database.
    let _ok: String = rig.redis.blocking_cli(&["SWAPDB", "0", "1"]);
    eventually("it holds two containers", || async {
        let held = rig.store.held_nodes().await.unwrap();
        held.first().is_some_and(|held| (&held.node, held.containers) == (&rig.node(), 2))
    })
    .await;
    let why = crate::health(&rig.config).unwrap_err();
    assert!(why.contains("does not know cluster") && why.contains("restore the data"), "{why}");
    until_lease_is_prolonged(&rig).await;
    assert_eq!((rig.containers("keep").await, rig.containers("stop").await), before);
    assert_eq!(rig.length("pq:w"), 0, "no session has begun there");

    let _ok: String = rig.redis.blocking_cli(&["SWAPDB", "0", "1"]);
    eventually("healthy", || async { crate::health(&rig.config).is_ok() }).await;
    rig.push(&payload("next", "alpine"));
    rig.until("next", Phase::Running).await;
    rig.until_settled(3).await;
    assert_eq!((rig.containers("keep").await, rig.containers("stop").await), before);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn after_flushall_a_restarted_worker_holds_too() {
    let Some(rig) = Rig::new("after_flushall_a_restarted_worker_holds_too") else { return };
    let worker = rig.worker();
    run_two(&rig).await;
    let before = (rig.containers("keep").await, rig.containers("stop").await);
    let _ok: String = rig.redis.blocking_cli(&["FLUSHALL"]);
    until_held(&rig, 1).await;
    drop(worker);
    let worker = rig.worker();
    until_lease_is_prolonged(&rig).await;
    assert_eq!((rig.containers("keep").await, rig.containers("stop").await), before);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn at_another_database_stop_pods_are_fenced_and_keep_pods_go_on() {
    let Some(mut rig) = Rig::new("at_another_database_stop_pods_are_fenced_and_keep_pods_go_on") else {
        return;
    };
    let worker = rig.worker();
    run_two(&rig).await;
    drop(worker);
    rig.config.redis = format!("{}/5", rig.redis.url()).parse().unwrap();
    let worker = rig.worker();
    rig.until_containers("stop", 0).await;
    eventually("it holds", || async { crate::health(&rig.config).is_err_and(|why| why.contains("cluster")) })
        .await;
    assert_eq!(rig.containers("keep").await.len(), 1);
    worker.end().await.unwrap();
    rig.config.redis = rig.redis.url().parse().unwrap();
    let worker = rig.worker();
    rig.until_containers("stop", 1).await;
    rig.until_settled(2).await;
    assert_eq!(rig.engine.running(), 2);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_redis_that_lost_only_the_id_gets_it_back_from_a_worker_that_it_knows() {
    let Some(rig) = Rig::new("a_redis_that_lost_only_the_id_gets_it_back_from_a_worker_that_it_knows") else {
        return;
    };
    let worker = rig.worker();
    run_two(&rig).await;
    let cluster = rig.store.cluster_id().await.unwrap();
    assert!(cluster.is_some());
    let _deleted: u64 = rig.redis.blocking_cli(&["DEL", "meta"]);
    eventually("the id is back", || async { rig.store.cluster_id().await.unwrap() == cluster }).await;
    assert_eq!(rig.store.held_nodes().await.unwrap(), []);
    assert_eq!(rig.engine.running(), 2);
    worker.end().await.unwrap();
}

/// Invariant 16: a death without proof removed containers held for a recovery.
#[tokio::test]
async fn a_worker_declared_dead_removes_what_has_moved_and_goes_on_to_hold_what_has_no_record() {
    let name = "a_worker_declared_dead_removes_what_has_moved_and_goes_on_to_hold_what_has_no_record";
    let Some(rig) = Rig::new(name) else { return };
    let worker = rig.worker();
    let lost = ["a", "b", "c", "d"];
    for pod in lost.into_iter().chain(["moves"]) {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    let containers = async || futures_util::future::join_all(lost.map(|pod| rig.containers(pod))).await;
    let before = containers().await;
    let _deleted: u64 = rig.redis.blocking_cli(&["DEL", "pod:a", "pod:b", "pod:c", "pod:d"]);
    for pod in lost {
        let _removed: u64 = rig.redis.blocking_cli(&["SREM", "cs:w", &payload(pod, "alpine")]);
    }
    until_held(&rig, 1).await;
    rig.declare_dead().await;
    let _deleted: u64 = rig.redis.blocking_cli(&["DEL", "held"]);
    eventually("what has moved is gone", || async { rig.containers("moves").await.is_empty() }).await;
    run_keepers(&rig, &["next"]).await;
    until_held(&rig, 1).await;
    assert_eq!(rig.store.held_nodes().await.unwrap()[0].reason, HoldReason::Records);
    assert_eq!(containers().await, before);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn two_clusters_with_the_same_node_name_share_an_engine() {
    let Some(rig) = Rig::new("two_clusters_with_the_same_node_name_share_an_engine") else { return };
    let Some(other) = Rig::new("two_clusters_with_the_same_node_name_share_an_engine") else { return };
    let worker = rig.worker();
    run_two(&rig).await;
    let engine = Arc::new(rig.engine.clone());
    let second = other.worker_on(engine.clone());
    other.push(&payload("third", "alpine"));
    other.until("third", Phase::Running).await;
    rig.push(&payload("fourth", "alpine"));
    rig.until("fourth", Phase::Running).await;
    assert_eq!(rig.engine.running(), 4);
    other.declare_dead().await;
    eventually("its own container is gone", || async { rig.containers("third").await.is_empty() }).await;
    other.redis.freeze();
    drop(second);
    let second = other.worker_on(engine);
    eventually("it has no lease", || async { crate::health(&other.config).is_err() }).await;
    drop(second);
    assert_eq!(rig.engine.running(), 3);
    assert_eq!(rig.containers("stop").await.len(), 1);
    other.redis.thaw();
    worker.end().await.unwrap();
}

#[tokio::test]
async fn an_unlabelled_container_that_redis_does_not_know_is_left_alone() {
    let Some(rig) = Rig::new("an_unlabelled_container_that_redis_does_not_know_is_left_alone") else {
        return;
    };
    let labelled = |pod: &str, cluster| {
        let identity = Identity { cluster, on_disconnect: OnDisconnect::Keep, ..identity("w", pod, "a") };
        ContainerRequest::new(identity, ContainerSpec::from_image("alpine"))
    };
    rig.engine.run(&labelled("old", None)).await.unwrap();
    rig.engine.run(&labelled("theirs", Some(ClusterId::random()))).await.unwrap();
    let worker = rig.worker();
    run_two(&rig).await;
    let own = rig.store.cluster_id().await.unwrap();
    rig.engine.run(&labelled("stale", own)).await.unwrap();
    rig.until_containers("stale", 0).await;
    assert_eq!((rig.containers("old").await.len(), rig.containers("theirs").await.len()), (1, 1));
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_without_containers_joins_the_cluster_that_its_redis_knows() {
    let Some(rig) = Rig::new("a_worker_without_containers_joins_the_cluster_that_its_redis_knows") else {
        return;
    };
    rig.worker().until_registered(&rig).await.end().await.unwrap();
    let first = crate::cluster_of(&rig.config);
    let _set: u64 = rig.redis.blocking_cli(&["HSET", "meta", "cluster", "another"]);
    std::fs::remove_file(rig.config.state_dir.join("w.lease")).unwrap();
    rig.worker().until_registered(&rig).await.end().await.unwrap();
    let second = crate::cluster_of(&rig.config);
    assert!(first.is_some() && second == ClusterId::new("another").ok() && first != second);
}

#[tokio::test]
async fn the_containers_of_a_renamed_node_are_fenced_where_they_must_be() {
    let Some(mut rig) = Rig::new("the_containers_of_a_renamed_node_are_fenced_where_they_must_be") else {
        return;
    };
    let worker = rig.worker();
    run_two(&rig).await;
    worker.end().await.unwrap();
    let former = std::mem::replace(&mut rig.config.node, NodeName::new("renamed").unwrap());
    let worker = rig.worker();
    let of_former = || async { rig.engine.list(&former).await.unwrap() };
    eventually("`stop` is fenced", || async { of_former().await.len() == 1 }).await;
    assert_eq!(of_former().await[0].on_disconnect, OnDisconnect::Keep);
    worker.end().await.unwrap();
}

async fn run_keepers(rig: &Rig, pods: &[&str]) {
    for pod in pods {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
}

#[tokio::test]
async fn an_older_state_of_redis_stops_nothing_and_its_records_come_back() {
    let Some(rig) = Rig::new("an_older_state_of_redis_stops_nothing_and_its_records_come_back") else {
        return;
    };
    let worker = rig.worker();
    let pods = ["a", "b", "c", "d"];
    run_keepers(&rig, &pods).await;
    for pod in pods {
        let _renamed: String =
            rig.redis.blocking_cli(&["RENAME", &format!("pod:{pod}"), &format!("saved:{pod}")]);
    }
    let _renamed: String = rig.redis.blocking_cli(&["RENAME", "cs:w", "saved:cs"]);
    eventually("all are held", || async {
        rig.store
            .held_nodes()
            .await
            .unwrap()
            .first()
            .is_some_and(|held| (held.containers, held.reason) == (4, HoldReason::Records))
    })
    .await;
    run_keepers(&rig, &["e"]).await;
    drop(worker);
    let worker = rig.worker();
    run_keepers(&rig, &["f"]).await;
    assert_eq!(rig.engine.running(), 6);

    let _stored: u64 = rig.redis.blocking_cli(&["SUNIONSTORE", "cs:w", "cs:w", "saved:cs"]);
    for (number, pod) in pods.iter().enumerate() {
        let _renamed: String =
            rig.redis.blocking_cli(&["RENAME", &format!("saved:{pod}"), &format!("pod:{pod}")]);
        let left = (pods.len() - 1 - number) as u64;
        eventually(&format!("{left} are held"), || async {
            let held = rig.store.held_nodes().await.unwrap();
            held.first().map_or(0, |held| held.containers) == left
        })
        .await;
        assert_eq!(rig.engine.running(), 6);
    }
    rig.stop("a").await;
    rig.until("a", Phase::Stopped).await;
    assert_eq!(rig.engine.running(), 5);
    worker.end().await.unwrap();
}

async fn until_dated(rig: &Rig, count: usize) {
    eventually(&format!("{count} pods are saved"), || async {
        saved(rig)
            .is_some_and(|state| state.pods.len() == count && state.pods.iter().all(|pod| pod.since > 0))
    })
    .await;
}

fn saved(rig: &Rig) -> Option<SavedState> {
    let text = std::fs::read_to_string(rig.config.data_dir.join("w.pods")).ok()?;
    SavedFile::read(text.lines()).ok().map(|file| file.state)
}

#[tokio::test]
async fn a_few_pods_whose_records_are_lost_are_held_and_those_that_must_not_run_twice_are_stopped() {
    let Some(rig) = Rig::new("a_few_pods_whose_records_are_lost_are_held") else { return };
    let worker = rig.worker();
    run_keepers(&rig, &["a", "b", "c", "d"]).await;
    rig.push(&payload_with("s", "alpine", STOP));
    rig.until("s", Phase::Running).await;
    until_dated(&rig, 5).await;
    let _deleted: u64 = rig.redis.blocking_cli(&["DEL", "pod:a", "pod:s"]);
    rig.until_containers("s", 0).await;
    eventually("one is held", || async {
        rig.store.held_nodes().await.unwrap().first().is_some_and(|held| held.containers == 1)
    })
    .await;
    assert_eq!(rig.engine.running(), 4);
    assert_eq!(saved(&rig).unwrap().pods.len(), 5, "both can be recovered");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_container_without_a_record_is_removed_where_its_service_desires_fewer() {
    let Some(rig) = Rig::new("a_container_without_a_record_is_removed_where_its_service") else { return };
    let worker = rig.worker();
    run_keepers(&rig, &["a", "b"]).await;
    let pods = rig.assign_service(r#"{"name":"web","image":"alpine","replicas":1}"#).await;
    rig.until(pods[0].as_str(), Phase::Running).await;
    until_dated(&rig, 3).await;
    let key = format!("pod:{}", pods[0]);
    let forget =
        "redis.call('DEL', KEYS[1], 'slots:web'); return redis.call('HSET', 'service:web', 'replicas', 0)";
    let _set: u64 = rig.redis.blocking_cli(&["EVAL", forget, "1", &key]);
    rig.until_containers(pods[0].as_str(), 0).await;
    assert_eq!(rig.store.held_nodes().await.unwrap(), []);
    worker.end().await.unwrap();
}
