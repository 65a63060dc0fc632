//! An overwritten key harms no other object.

use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{Placed, node};
use model::ids::SchedulerId;
use model::pod::lifecycle::Phase;
use store::{Fenced, Finding, ForeignKey};

/// Except those that every script moves out of its way.
const CLUSTER_KEYS: [&str; 21] = [
    "sq",
    "dq",
    "uq",
    "uq:at",
    "uq:why",
    "uq:class",
    "uq:by_class",
    "services",
    "unconfirmed",
    "pushed",
    "former_specs",
    "nodes",
    "held",
    "beats",
    "schedulers",
    "secrets",
    "configs",
    "registries",
    "rollouts",
    "routes",
    "acme_accounts",
];

async fn overwrite(fixture: &Fixture, key: &str) {
    let () = fixture.redis.cli(&["SET", key, "another program's"]).await;
}

async fn type_of(fixture: &Fixture, key: &str) -> String {
    fixture.redis.cli(&["TYPE", key]).await
}

#[tokio::test]
async fn heartbeats_go_on_when_another_program_has_written_their_list() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    overwrite(&fixture, "beats").await;
    let () = fixture.redis.cli(&["DEL", "hb:w1"]).await;
    let () = fixture.redis.cli(&["LPUSH", "hb:w1", "x"]).await;
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    assert_eq!(type_of(&fixture, "beats").await, "zset");
    assert_eq!(type_of(&fixture, "broken:beats").await, "string", "what was written is kept");
    fixture.node("w2").await;
    assert_eq!(fixture.store.live_nodes().await.unwrap(), 2);
}

#[tokio::test]
async fn a_lease_of_another_type_can_be_taken() {
    let fixture = Fixture::new().await;
    let () = fixture.redis.cli(&["HSET", "lease:reconcile", "a", "b"]).await;
    let me = SchedulerId::random();
    assert!(fixture.store.lease("reconcile", &me, Duration::from_secs(5)).await.unwrap());
    assert!(!fixture.store.lease("reconcile", &SchedulerId::random(), Duration::from_secs(5)).await.unwrap());
}

#[tokio::test]
async fn a_cluster_id_that_was_overwritten_fences_no_worker_that_redis_knows() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let cluster: String = fixture.redis.cli(&["HGET", "meta", "cluster"]).await;
    for command in [&["HSET", "meta", "cluster", "another"][..], &["HDEL", "meta", "cluster"]] {
        let _: u64 = fixture.redis.cli(command).await;
        session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
        let now: String = fixture.redis.cli(&["HGET", "meta", "cluster"]).await;
        assert_eq!(now, cluster, "{command:?}");
    }
}

#[tokio::test]
async fn keys_of_the_cluster_of_another_type_are_moved_out_of_the_way() {
    let fixture = Fixture::new().await;
    fixture.pod_in(Phase::Running, "web", "w1").await;
    let untouched = fixture.keyspace().await;
    assert_eq!(fixture.store.set_aside_cluster_keys().await.unwrap(), Vec::<String>::new());
    assert_eq!(fixture.store.set_aside_queues(&[node("w1")], &[]).await.unwrap(), Vec::<String>::new());
    assert_eq!(untouched.changes(&fixture.keyspace().await), Vec::<String>::new());
    for key in CLUSTER_KEYS {
        overwrite(&fixture, key).await;
        assert!(fixture.store.foreign_keys().await.unwrap().contains(&ForeignKey::InPlace(key)), "{key}");
        assert_eq!(fixture.store.set_aside_cluster_keys().await.unwrap(), [key]);
        let begun_anew = if key == "services" { "set" } else { "none" };
        assert_eq!(type_of(&fixture, key).await, begun_anew);
        assert!(fixture.store.foreign_keys().await.unwrap().contains(&ForeignKey::SetAside(key)), "{key}");
        let lasts: i64 = fixture.redis.cli(&["TTL", &format!("broken:{key}")]).await;
        assert!(lasts > 6 * 24 * 3600, "{key} is kept for {lasts} s");
    }
    for key in ["pq:w1", "rq:w1", "cs:w1", "stop:w1"] {
        overwrite(&fixture, key).await;
        assert_eq!(fixture.store.set_aside_queues(&[node("w1")], &[]).await.unwrap(), [key]);
    }
    for record in ["node:w1", "slots:web"] {
        overwrite(&fixture, record).await;
    }
    assert_eq!(
        fixture.store.set_aside_queues(&[node("w1")], &[]).await.unwrap(),
        Vec::<String>::new(),
        "a person decides about records"
    );
}

#[tokio::test]
async fn names_are_read_from_the_records_while_their_list_has_another_type() {
    let fixture = Fixture::new().await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    overwrite(&fixture, "services").await;
    overwrite(&fixture, "nodes").await;
    assert_eq!(fixture.store.service_names().await.unwrap(), [record.service.clone().unwrap()]);
    assert_eq!(fixture.store.node_names().await.unwrap(), [node("w1")]);
    fixture.store.set_aside_cluster_keys().await.unwrap();
    let service = record.service.unwrap();
    let names = fixture.store.service_names().await.unwrap();
    assert_eq!(names, std::slice::from_ref(&service), "also one without pods");
    let () = fixture.redis.cli(&["DEL", "services"]).await;
    assert!(fixture.store.list_service_again(&service).await.unwrap());
    assert!(!fixture.store.list_service_again(&service).await.unwrap(), "it is listed");
    assert!(!fixture.store.list_service_again(&"other".parse().unwrap()).await.unwrap(), "it has no record");
}

/// The process that moved the list away has died before it wrote the names again.
#[tokio::test]
async fn a_service_without_pods_is_listed_by_the_next_one_that_looks() {
    let fixture = Fixture::new().await;
    fixture.service("empty", 0).await;
    let names = [model::ids::ServiceName::new("empty").unwrap()];
    overwrite(&fixture, "services").await;
    let found = fixture.store.check().await.unwrap();
    let is_it = |finding: &&Finding| finding.key == "services" && finding.problem.contains("must be a set");
    assert!(fixture.store.repair(found.iter().find(is_it).unwrap()).await.unwrap());
    assert_eq!(fixture.store.service_names().await.unwrap(), []);
    for _ in 0..2 {
        assert_eq!(fixture.store.set_aside_cluster_keys().await.unwrap(), Vec::<String>::new());
        assert_eq!(fixture.store.service_names().await.unwrap(), names);
    }
    let () = fixture.redis.cli(&["DEL", "services"]).await;
    fixture.store.set_aside_cluster_keys().await.unwrap();
    assert_eq!(fixture.store.service_names().await.unwrap(), []);
}

#[tokio::test]
async fn an_absurd_number_of_replicas_does_not_fill_the_cluster() {
    let fixture = Fixture::new().await;
    fixture.service("web", 3).await;
    fixture.service("broken", 1).await;
    let () = fixture.redis.cli(&["HSET", "service:broken", "replicas", "9223372036854775807"]).await;
    assert_eq!(fixture.store.cluster_size().await.unwrap().pods, 3);
}

#[tokio::test]
async fn a_pod_of_an_absurd_size_leaves_its_node_readable() {
    let fixture = Fixture::new().await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    let key = format!("pod:{}", record.id);
    let _: u64 = fixture.redis.cli(&["HSET", &key, "memory", "9223372036854775808"]).await;
    let read = fixture.record(&record.id).await;
    let usage = fixture.store.node_usage(&[node("w1")]).await.unwrap().remove(0);
    let actual = read.request;
    assert!(fixture.store.correct_usage(&usage, &actual, &[]).await.unwrap());
    assert!(fixture.store.node(&node("w1")).await.is_ok());
}

#[tokio::test]
async fn a_check_repairs_records_that_no_daemon_can_read() {
    let fixture = Fixture::new().await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    let key = format!("pod:{}", record.id);
    let faults: [(&[&str], &str); 9] = [
        (&["HSET", &key, "attempts", "NaN", "since", "1e300"], "removes attempts, since"),
        (&["HSET", "node:w1", "labels", "nonsense"], "removes beat,"),
        (&["HSET", "node:w1", "own_labels", "[]"], "removes beat,"),
        (&["HSET", "node:w1", "labels_revision", "-1"], "removes beat,"),
        (&["HSET", "service:web", "updated_at", "-1"], "removes updated_at"),
        (&["HSET", "slots:web", "+1", "x"], "removes the entry"),
        (&["SREM", "services", "web"], "adds web"),
        (&["HSET", "service:web", "state", ""], "renames it to broken:service:web"),
        (&["HSET", &key, "phase", "\u{fffd}"], "renames it to broken:pod:"),
    ];
    for (fault, repair) in faults {
        let fixture = Fixture::new().await;
        let Placed { record: fresh, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
        let fault: Vec<String> =
            fault.iter().map(|word| word.replace(record.id.as_str(), fresh.id.as_str())).collect();
        let _: redis::Value = fixture.redis.cli(&fault).await;
        let found = fixture.store.check().await.unwrap();
        let [finding] = &found[..] else { panic!("{fault:?}: {found:?}") };
        assert!(finding.repair().starts_with(repair), "{fault:?}: {}", finding.repair());
        assert!(fixture.store.repair(finding).await.unwrap(), "{fault:?}");
        let again = fixture.store.check().await.unwrap();
        assert!(!again.contains(finding), "{fault:?}: {again:?}");
        assert!(!fixture.store.repair(finding).await.unwrap(), "repeated: {fault:?}");
    }
}

#[tokio::test]
async fn a_check_writes_a_specification_again_that_a_service_names() {
    let faults: [&[&str]; 5] = [
        &["HSET", "service:web", "spec", "NaN"],
        &["DEL", "spec:ID"],
        &["SET", "spec:ID", ""],
        &["SET", "spec:ID", "nonsense"],
        &["EXPIRE", "spec:ID", "60"],
    ];
    for fault in faults {
        let fixture = Fixture::new().await;
        let service = fixture.service("web", 1).await;
        let fault: Vec<String> =
            fault.iter().map(|word| word.replace("ID", service.spec_id.as_str())).collect();
        let _: redis::Value = fixture.redis.cli(&fault).await;
        let found = fixture.store.check().await.unwrap();
        let is_asked = |finding: &&Finding| finding.repair().contains("from the record of service web");
        let finding = found.iter().find(is_asked).unwrap_or_else(|| panic!("{fault:?}: {found:?}"));
        assert!(fixture.store.repair(finding).await.unwrap(), "{fault:?}");
        assert!(!fixture.store.check().await.unwrap().contains(finding), "{fault:?}");
        let (store, service) = (fixture.redis.store(), fixture.store.service(&service.name).await.unwrap());
        let service = service.unwrap();
        assert_eq!(*store.pod_spec(&service.spec_id).await.unwrap().unwrap(), service.pod, "{fault:?}");
        let expires: i64 = fixture.redis.cli(&["TTL", &format!("spec:{}", service.spec_id)]).await;
        assert_eq!(expires, -1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_node_whose_state_is_none_registers_again() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    for command in [&["HSET", "node:w1", "state", "nonsense"][..], &["HDEL", "node:w1", "state"]] {
        let _: u64 = fixture.redis.cli(command).await;
        assert_eq!(
            session.heartbeat(None, None, 0, &[]).await.unwrap(),
            Err(Fenced::Replaced),
            "{command:?}"
        );
    }
}
