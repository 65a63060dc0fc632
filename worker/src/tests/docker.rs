//! One worker on the real engine of this machine: the promise of the sample line, from push to removal.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::ids::{AssignmentId, NodeName};
use common::lifecycle::Phase;

use super::rig::{Rig, eventually, payload, payload_with};
use crate::runtime::Runtime;
use crate::runtime::docker::DockerRuntime;
use crate::runtime::hello::{Recipe, import_recipe};

const IMAGE: &str = "kubeleet-test/worker-sleep:1";

/// Removes what the test made, also when it panics.
struct Sweeper(String);

impl Drop for Sweeper {
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

async fn engine(test: &str) -> Option<Arc<DockerRuntime>> {
    let engine = DockerRuntime::connect(None).unwrap();
    if let Err(error) = engine.ping().await {
        assert!(!std::env::var("REQUIRE").is_ok_and(|list| list.contains("docker")), "{error}");
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("SKIPPED (no docker): {test}");
        }
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
    let Some(engine) = engine(test).await else { return };
    // Roomy enough for an engine that other tests use too.
    rig.config.timing.fence_after = std::time::Duration::from_secs(10);
    rig.config.timing.dead_after = std::time::Duration::from_secs(20);
    rig.config.node = NodeName::new(format!("test-{}", AssignmentId::random())).unwrap();
    let sweeper = Sweeper(rig.config.node.to_string());
    let filter = format!("label=kubeleet.node={}", sweeper.0);
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
    rig.until_says("absent", "ImagePullBackOff").await;
    drop(worker);

    let worker = rig.worker_on(engine.clone());
    eventually("the second life registered", || async {
        rig.store.last_events(50).await.unwrap().iter().any(|event| event.reason == "NodeRestarted")
    })
    .await;
    // A container that somebody removed is made again; the other is left alone.
    let other = rig.containers_on(engine.as_ref(), "two").await.remove(0).handle;
    let gone = rig.containers_on(engine.as_ref(), "one").await.remove(0).handle;
    docker(&["rm", "-f", &gone]);
    eventually("`one` runs in another container", || async {
        let now = rig.containers_on(engine.as_ref(), "one").await;
        now.first().is_some_and(|container| container.handle != gone)
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
