//! Volumes on the simulated engine, where they are names: their removal and its timing.

use engine::VolumeOwner;
use model::ids::{ServiceName, VolumeName};
use model::node::SharedVolumesState;
use model::pod::lifecycle::Phase;
use model::service::volume::VolumeState;
use store::RemoveVolumeOutcome;

use super::rig::*;

const SERVICE: &str = r#"{"name":"db","image":"i","replicas":1,"volumes":["data:/d","/cache"]}"#;

fn volumes(rig: &Rig) -> (usize, usize) {
    let all = rig.engine.all_volumes();
    let persistent = all.iter().filter(|volume| matches!(volume.owner, VolumeOwner::Replica(_))).count();
    (persistent, all.len() - persistent)
}

async fn until_volumes(rig: &Rig, expected: (usize, usize)) {
    eventually(&format!("{expected:?} persistent and local volumes"), || async { volumes(rig) == expected })
        .await;
}

fn data() -> VolumeName {
    VolumeName::new("db_data_0").unwrap()
}

#[tokio::test]
async fn a_local_volume_goes_with_its_pod_and_a_persistent_one_when_it_is_asked_to() {
    let Some(rig) = Rig::new("volumes") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(SERVICE).await[0].to_string();
    rig.until(&pod, Phase::Running).await;
    assert_eq!(volumes(&rig), (1, 1));
    rig.engine.exit(&id(&pod), 1);
    eventually("it was restarted", || async { rig.record(&pod).await.unwrap().restarts > 0 }).await;
    assert_eq!(volumes(&rig), (1, 1), "a restart keeps both");
    assert_eq!(rig.store.remove_volume(&data()).await.unwrap(), RemoveVolumeOutcome::Used);
    let service = ServiceName::new("db").unwrap();
    rig.store.delete_service(&service).await.unwrap();
    let pods = [(id(&pod), Some(rig.node()))];
    rig.store.stop_pods(Some(&service), &pods, "Test", "stopped by the test").await.unwrap();
    until_volumes(&rig, (1, 0)).await;
    let kept = rig.store.volume(&data()).await.unwrap().unwrap();
    assert_eq!((kept.state, kept.node), (VolumeState::Bound, Some(rig.node())));
    assert_eq!(rig.store.remove_volume(&data()).await.unwrap(), RemoveVolumeOutcome::Removing);
    until_volumes(&rig, (0, 0)).await;
    eventually("its record is gone", || async { rig.store.volume(&data()).await.unwrap().is_none() }).await;
}

#[tokio::test]
async fn what_a_killed_worker_has_left_is_removed_by_the_next_one() {
    let Some(rig) = Rig::new("volumes_killed") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(SERVICE).await[0].to_string();
    rig.until(&pod, Phase::Running).await;
    drop(worker);
    let service = ServiceName::new("db").unwrap();
    rig.store.delete_service(&service).await.unwrap();
    rig.store.remove_volumes_of(&service).await.unwrap();
    let pods = [(id(&pod), Some(rig.node()))];
    rig.store.stop_pods(Some(&service), &pods, "Test", "stopped by the test").await.unwrap();
    let _worker = rig.worker().until_registered(&rig).await;
    until_volumes(&rig, (0, 0)).await;
    eventually("its record is gone", || async { rig.store.volume(&data()).await.unwrap().is_none() }).await;
}

#[tokio::test]
async fn a_pod_whose_volume_was_pruned_waits_until_an_operator_says_that_it_begins_anew() {
    let Some(rig) = Rig::new("volumes_lost") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(SERVICE).await[0].to_string();
    rig.until(&pod, Phase::Running).await;
    eventually("the volume is reported", || async {
        rig.store.volume(&data()).await.unwrap().is_some_and(|volume| volume.is_found)
    })
    .await;
    let epoch = rig.store.volume(&data()).await.unwrap().unwrap().epoch;
    assert!(epoch.is_some() && rig.engine.all_volumes().iter().any(|volume| volume.epoch == epoch));
    rig.engine.prune(&id(&pod));
    eventually("its pod waits", || async {
        rig.record(&pod).await.is_some_and(|record| record.reason == "VolumeLost")
    })
    .await;
    assert_eq!(volumes(&rig).0, 0);
    assert!(rig.store.volume(&data()).await.unwrap().unwrap().is_lost);
    assert_eq!(rig.store.remove_volume(&data()).await.unwrap(), RemoveVolumeOutcome::Removed);
    rig.until(&pod, Phase::Running).await;
    until_volumes(&rig, (1, 1)).await;
}

const SHARED: &str = r#"{"name":"web","image":"i","replicas":1,
    "volumes":[{"source":"up","target":"/up","kind":"shared"}]}"#;

#[tokio::test]
async fn a_shared_volume_is_made_in_the_directory_of_the_cluster_and_in_no_other() {
    let Some(mut rig) = Rig::new("shared_volumes") else { return };
    let directory = rig.directory.path().join("shared");
    std::fs::create_dir(&directory).unwrap();
    rig.config.shared_volumes_dir = Some(directory.clone());
    let worker = rig.worker().until_registered(&rig).await;
    let state = || async { rig.store.node(&rig.node()).await.unwrap().unwrap().shared_volumes };
    eventually("it is ready", || async { state().await == Some(SharedVolumesState::Ready) }).await;
    let pod = rig.assign_service(SHARED).await[0].to_string();
    rig.until(&pod, Phase::Running).await;
    let volume = directory.join("web_up_shared");
    assert!(volume.is_dir());
    drop(worker);

    let identity = std::fs::read(directory.join(".kubeleet-shared")).unwrap();
    std::fs::write(
        directory.join(".kubeleet-shared"),
        String::from_utf8_lossy(&identity).replace("id\":\"", "id\":\"x"),
    )
    .unwrap();
    rig.engine.exit(&id(&pod), 1);
    let _worker = rig.worker().until_registered(&rig).await;
    eventually("it is refused", || async {
        matches!(state().await, Some(SharedVolumesState::Refused(why)) if why.contains("that of the cluster is"))
    })
    .await;
    let other = SHARED.replace("web", "other");
    let pod = rig.assign_service(&other).await[0].to_string();
    eventually("its pod waits", || async {
        rig.record(&pod).await.is_some_and(|record| record.reason == "SharedVolumeUnavailable")
    })
    .await;
    assert!(!directory.join("other_up_shared").exists());

    std::fs::write(directory.join(".kubeleet-shared"), identity).unwrap();
    rig.until(&pod, Phase::Running).await;
    eventually("it is ready again", || async { state().await == Some(SharedVolumesState::Ready) }).await;
    for service in ["web", "other"] {
        let service = ServiceName::new(service).unwrap();
        rig.store.delete_service(&service).await.unwrap();
        assert_eq!(rig.store.remove_volumes_of(&service).await.unwrap(), 1);
    }
    assert!(volume.is_dir(), "its pod still runs");
    for service in ["web", "other"] {
        let service = ServiceName::new(service).unwrap();
        let slots = rig.store.slots(&service).await.unwrap().into_iter();
        let pods: Vec<_> = slots.map(|(_, pod)| (pod, Some(rig.node()))).collect();
        rig.store.stop_pods(Some(&service), &pods, "Test", "stopped by the test").await.unwrap();
    }
    eventually("both volumes are gone, and their records", || async {
        std::fs::read_dir(&directory).unwrap().count() == 1
            && rig.store.volume_names().await.unwrap().is_empty()
    })
    .await;
}
