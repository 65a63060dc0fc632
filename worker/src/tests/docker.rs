//! One worker on this machine's real engine, from the push of a pod to its removal.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use daemon::clock::{BootClock, Clock};
use engine::Runtime;
use engine::docker::DockerRuntime;
use engine::docker::sample_image::{Recipe, import_recipe};
use model::ids::{AssignmentId, NodeName, PodId};
use model::pod::lifecycle::Phase;

use testkit::faulty_engine::{EngineFault, FaultyEngine, engine_socket};

use super::rig::{Rig, eventually, payload, payload_with};
use crate::backup::backup_containers;
use crate::backup::pod_backup;
use crate::fencing::fence;
use crate::session::identity;

const IMAGE: &str = "kubeleet-test/worker-sleep:1";

struct Cleanup(String);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let shell = format!(
            "docker ps -aq --filter label=kubeleet.node={} | xargs -r docker rm -fv >/dev/null",
            self.0
        );
        let _best_effort = Command::new("sh").args(["-c", &shell]).status();
    }
}

fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

async fn engine() -> Option<Arc<DockerRuntime>> {
    let engine = DockerRuntime::connect(None).unwrap();
    if let Err(error) = engine.ping().await {
        testkit::require::skipped("docker", &error.to_string());
        return None;
    }
    let programs = [(Path::new("/bin/sleep"), "/bin/sleep")];
    let recipe = Recipe { programs: &programs, command: &["/bin/sleep", "600"], ..Default::default() };
    import_recipe(&engine, recipe, IMAGE).await.unwrap();
    Some(Arc::new(engine))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_one_container_across_restarts_and_gone_after_a_stop() {
    let test = "a_push_is_one_container_across_restarts_and_gone_after_a_stop";
    let Some(mut rig) = Rig::new(test) else { return };
    let Some(engine) = engine().await else { return };
    rig.config.timing.fence_after = std::time::Duration::from_secs(10);
    rig.config.timing.dead_after = std::time::Duration::from_secs(20);
    rig.config.node = NodeName::new(format!("test-{}", AssignmentId::random())).unwrap();
    let cleanup = Cleanup(rig.config.node.to_string());
    let filter = format!("label=kubeleet.node={}", cleanup.0);
    let names = || docker(&["ps", "-a", "--filter", &filter, "--format", "{{.Names}} {{.State}}"]);
    let grace = r#""stop_grace_period":0"#;

    let worker = rig.worker_on(engine.clone());
    for pod in ["one", "one", "two"] {
        rig.push(&payload_with(pod, IMAGE, grace));
    }
    rig.push(&payload("absent", "kubeleet-test/there-is-no-such-image:1"));
    rig.until("one", Phase::Running).await;
    rig.until("two", Phase::Running).await;
    let running = names();
    assert_eq!(running.lines().filter(|l| l.starts_with("test-3-") && l.ends_with("running")).count(), 2);
    rig.until_reason("absent", "ImagePullBackOff").await;
    drop(worker);

    let worker = rig.worker_on(engine.clone());
    eventually("the second session registered", || async {
        rig.store.last_events(50).await.unwrap().iter().any(|event| event.reason == "NodeRestarted")
    })
    .await;
    let other = rig.containers_on(engine.as_ref(), "two").await.remove(0).handle;
    let removed = rig.containers_on(engine.as_ref(), "one").await.remove(0).handle;
    docker(&["rm", "-f", &removed]);
    eventually("`one` runs in another container", || async {
        let now = rig.containers_on(engine.as_ref(), "one").await;
        now.first().is_some_and(|container| container.handle != removed)
    })
    .await;
    assert_eq!(rig.containers_on(engine.as_ref(), "two").await.remove(0).handle, other);
    rig.until("one", Phase::Running).await;

    for pod in ["one", "two", "absent"] {
        rig.stop(pod).await;
        rig.until(pod, Phase::Stopped).await;
    }
    assert_eq!(names(), "");
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_has_the_ports_that_the_engine_chose_also_after_a_restart() {
    let test = "the_record_has_the_ports_that_the_engine_chose_also_after_a_restart";
    let Some(mut rig) = Rig::new(test) else { return };
    let Some(engine) = engine().await else { return };
    rig.config.node = NodeName::new(format!("test-{}", AssignmentId::random())).unwrap();
    rig.config.restart_backoff = Duration::from_millis(500);
    let cleanup = Cleanup(rig.config.node.to_string());
    let filter = format!("label=kubeleet.node={}", cleanup.0);
    let shown = || docker(&["ps", "--filter", &filter, "--format", "{{.Ports}}"]);
    let recorded = || async {
        let record = rig.store.pod(&PodId::new("web").unwrap()).await.unwrap().unwrap();
        record.published_ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let agreed = |what| {
        eventually(what, || async {
            let (shown, recorded) = (shown(), recorded().await);
            (!shown.is_empty() && shown == recorded).then_some(shown)
        })
    };

    let worker = rig.worker_on(engine.clone());
    rig.push(&payload_with("web", IMAGE, r#""ports":[80],"stop_grace_period":0"#));
    rig.until("web", Phase::Running).await;
    let first = recorded().await;
    assert!(first.starts_with("127.0.0.1:") && first.ends_with("->80/tcp"), "with the ack: {first:?}");
    assert_eq!(first, shown());

    docker(&["kill", &docker(&["ps", "-q", "--filter", &filter])]);
    let port = first.trim_end_matches("->80/tcp").to_owned();
    let _taken = eventually("the port is free", || async { std::net::TcpListener::bind(&port).ok() }).await;
    let second = agreed("the port after the restart of the container is recorded").await;
    assert_ne!(second, first);

    drop(worker);
    let container = docker(&["ps", "-q", "--filter", &filter]);
    docker(&["stop", "-t", "0", &container]);
    let port = second.trim_end_matches("->80/tcp").to_owned();
    let _also_taken =
        eventually("the port is free", || async { std::net::TcpListener::bind(&port).ok() }).await;
    docker(&["start", &container]);
    assert_eq!(recorded().await, second);
    let _worker = rig.worker_on(engine.clone());
    let third = agreed("the port after the restart of the worker is recorded").await;
    assert!(third != second && third != first, "{third}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_a_memory_limit_gets_that_of_the_node() {
    let Some(mut rig) = Rig::new("a_pod_without_a_memory_limit_gets_that_of_the_node") else { return };
    let Some(engine) = engine().await else { return };
    rig.config.timing.fence_after = Duration::from_secs(10);
    rig.config.timing.dead_after = Duration::from_secs(20);
    rig.config.node = NodeName::new(format!("test-{}", AssignmentId::random())).unwrap();
    let _cleanup = Cleanup(rig.config.node.to_string());
    rig.config.memory = Some("128MiB".parse().unwrap());
    let worker = rig.worker_on(engine.clone());
    rig.push(&payload("plain", IMAGE));
    rig.push(&payload_with("limited", IMAGE, r#""memory":"32MiB""#));
    for (pod, expected) in [("plain", 64_u64 << 20), ("limited", 32 << 20)] {
        rig.until(pod, Phase::Running).await;
        let handle = rig.containers_on(engine.as_ref(), pod).await.remove(0).handle;
        let limits =
            docker(&["inspect", "--format", "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}", &handle]);
        assert_eq!(limits, format!("{expected} {expected}"), "{pod}");
    }
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sick_engine_does_not_keep_the_fence_from_stopping_what_it_must() {
    let Some(mut rig) = Rig::new("a_sick_engine") else { return };
    let Some(engine) = engine().await else { return };
    rig.config.timing.heartbeat = Duration::from_millis(500);
    rig.config.timing.fence_after = Duration::from_secs(4);
    rig.config.timing.dead_after = Duration::from_secs(30);
    rig.config.node = NodeName::new(format!("test-{}", AssignmentId::random())).unwrap();
    let _cleanup = Cleanup(rig.config.node.to_string());
    let proxy = FaultyEngine::start(&engine_socket());
    let worker = rig.worker_on(Arc::new(DockerRuntime::connect(Some(&proxy.host())).unwrap()));
    rig.push(&payload_with("ended", IMAGE, r#""restart":"never","command":["/bin/sleep","0"]"#));
    rig.until("ended", Phase::Succeeded).await;
    let ended = rig.containers_on(engine.as_ref(), "ended").await.remove(0).handle;
    rig.push(&payload_with("stop", IMAGE, r#""on_disconnect":"stop","stop_grace_period":0"#));
    rig.push(&payload_with("keep", IMAGE, r#""stop_grace_period":0"#));

    let inspection = format!("/containers/{ended}/json");
    let faults = [
        ("/containers/json", EngineFault::Delay(Duration::from_secs(12))),
        ("/containers/json", EngineFault::Fail),
        (inspection.as_str(), EngineFault::Hang),
        ("/containers/json", EngineFault::Replace(r#""State":"running""#, r#""State":"gliding""#)),
    ];
    for (part, fault) in faults {
        rig.until("stop", Phase::Running).await;
        rig.until("keep", Phase::Running).await;
        eventually(&format!("{fault:?}: both run"), || async {
            rig.containers_on(engine.as_ref(), "stop").await.len() == 1
        })
        .await;
        proxy.set(part, fault.clone());
        rig.redis.freeze();
        eventually(&format!("{fault:?}: the fence stops the pod"), || async {
            rig.containers_on(engine.as_ref(), "stop").await.is_empty()
        })
        .await;
        assert_eq!(rig.containers_on(engine.as_ref(), "keep").await.len(), 1, "{fault:?}");
        rig.redis.thaw();
        proxy.heal();
        let before = rig.record("stop").await.unwrap().assignment;
        eventually(&format!("{fault:?}: it is started again"), || async {
            let record = rig.record("stop").await.unwrap();
            record.phase == Phase::Running
                && (record.assignment != before
                    || rig.containers_on(engine.as_ref(), "stop").await.len() == 1)
        })
        .await;
    }
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_stops_what_a_worker_has_saved_although_the_engine_lists_nothing() {
    let Some(mut rig) = Rig::new("another_process_stops") else { return };
    let Some(engine) = engine().await else { return };
    rig.config.node = NodeName::new(format!("test-{}", AssignmentId::random())).unwrap();
    let _cleanup = Cleanup(rig.config.node.to_string());
    rig.config.timing.fence_after = Duration::from_secs(10);
    rig.config.timing.dead_after = Duration::from_secs(20);
    let worker = rig.worker_on(engine.clone());
    rig.push(&payload_with("stop", IMAGE, r#""on_disconnect":"stop","stop_grace_period":0"#));
    rig.push(&payload_with("keep", IMAGE, r#""stop_grace_period":0"#));
    for pod in ["stop", "keep"] {
        rig.until(pod, Phase::Running).await;
    }
    let (node, config) = (&rig.config.node, &rig.config);
    eventually("both are saved", || async {
        let text = std::fs::read_to_string(pod_backup::file_of(&config.data_dir, node)).unwrap_or_default();
        ["stop", "keep"].iter().all(|pod| text.contains(&format!(r#"\"uuid\":\"{pod}\""#)))
    })
    .await;
    drop(worker);

    let proxy = FaultyEngine::start(&engine_socket());
    let sick = DockerRuntime::connect(Some(&proxy.host())).unwrap();
    proxy.set("/containers/json", EngineFault::Fail);
    let known = backup_containers::read(&config.data_dir, node, &sick);
    assert_eq!(known.all().len(), 1, "the one that must not run twice");
    let (cluster, timing, deadline) = (identity::cluster_of(config), &config.timing, BootClock.now());
    let scope = fence::FenceScope { node, cluster: cluster.as_ref(), timing, proxy: None, saved: None };
    let enforced = fence::enforce(&sick, &scope, deadline, &BootClock, &known).await;
    assert!(enforced.is_err(), "it is tried again until the engine lists its containers");
    assert_eq!(rig.containers_on(engine.as_ref(), "stop").await, []);
    assert_eq!(rig.containers_on(engine.as_ref(), "keep").await.len(), 1);
}
