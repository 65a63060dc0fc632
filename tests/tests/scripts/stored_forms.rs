//! Promise 14: data stored by earlier versions is read, and means the same.

use std::path::{Path, PathBuf};

use kubeleet_tests::Fixture;
use kubeleet_tests::keyspace::KeyEntry;
use model::ids::PodId;
use model::pod::lifecycle::Phase;
use model::spec::{DesiredService, ServiceInput};
use store::{PutMode, PutOutcome};

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stored");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty(), "there is one for each version");
    files
}

async fn load(file: &Path) -> Fixture {
    let fixture = Fixture::new().await;
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let words: Vec<String> = serde_json::from_str(line).unwrap();
        let _reply: redis::Value = fixture.redis.cli(&words).await;
    }
    fixture
}

fn desired() -> [DesiredService; 3] {
    [
        serde_json::json!({"name": "web", "image": "nginx", "replicas": 2, "command": ["sh", "-c", "sleep 9"],
            "environment": {"A": "b=c"}, "ports": ["8080:80", "127.0.0.1:53:53/udp"], "memory": "64MiB",
            "cpus": 0.5, "restart": "on-failure", "on_disconnect": "stop", "stop_grace_period": "30s",
            "labels": {"team": "a"}}),
        serde_json::json!({"name": "huge", "image": "nginx", "replicas": 1, "cpus": 4000}),
        serde_json::json!({"name": "small", "image": "nginx:2", "replicas": 1}),
    ]
    .map(|input| ServiceInput::from_value(&input).unwrap().normalize().unwrap())
}

#[tokio::test]
async fn what_earlier_versions_stored_is_read() {
    for file in fixtures() {
        let (shown, fixture) = (file.display(), load(&file).await);
        let store = &fixture.store;
        for desired in desired() {
            let service = store.service(&desired.name).await.unwrap().unwrap();
            assert_eq!(
                (&service.pod, service.replicas, &service.fields.labels),
                (&desired.pod, desired.replicas, &desired.fields.labels),
                "{shown}"
            );
            assert_eq!(*store.pod_spec(&service.spec_id).await.unwrap().unwrap(), desired.pod, "{shown}");
        }
        let keyspace = fixture.keyspace().await;
        let ids: Vec<PodId> = keyspace.below("pod:").map(|(id, _)| PodId::new(id).unwrap()).collect();
        let pods: Vec<_> = store.pods(&ids).await.unwrap().into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(pods.len(), ids.len(), "{shown}");
        for pod in pods.iter().filter(|pod| pod.phase == Phase::Running) {
            assert!(store.payload_of(pod).await.unwrap().is_some(), "{shown}: {pod:?}");
        }
        let nodes = store.nodes(&store.node_names().await.unwrap()).await.unwrap();
        assert_eq!(nodes.into_iter().filter_map(Result::unwrap).count(), 2, "{shown}");
        let Some(KeyEntry::Stream(events)) = keyspace.get("events") else { panic!("{shown}: no events") };
        assert!(store.last_events(1000).await.unwrap().len() as u64 >= *events, "{shown}");
        assert_eq!(store.dead_letters(0, 10).await.unwrap()[0].payload, b"garbage", "{shown}");
        let huge = pods.iter().find(|pod| pod.phase == Phase::Pending).unwrap();
        assert!(!store.refusals(&huge.id).await.unwrap().unwrap().is_empty(), "{shown}");
        assert_eq!(store.check().await.unwrap(), [], "{shown}");
    }
}

/// Otherwise the first `apply` after an upgrade would replace every pod.
#[tokio::test]
async fn putting_what_an_earlier_version_stored_changes_nothing() {
    for file in fixtures() {
        let (shown, fixture) = (file.display(), load(&file).await);
        for desired in desired() {
            let (outcome, _) = fixture.store.put_service(&desired, PutMode::Replace, None).await.unwrap();
            assert!(matches!(outcome, PutOutcome::Unchanged { .. }), "{shown}: {outcome:?}");
        }
    }
}
