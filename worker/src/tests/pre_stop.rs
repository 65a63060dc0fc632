//! `pre_stop` with real processes: commands before the signal, and the effect of their failures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::process::ProcessRuntime;
use model::pod::lifecycle::Phase;
use tokio::time::Instant;

use super::rig::{Rig, eventually, payload_with};

fn pod(rig: &Rig, hooks: &str, grace: u32) -> (String, PathBuf) {
    let journal = rig.config.data_dir.join("journal");
    let path = journal.display();
    let script = format!("trap 'echo TERM >> {path}; exit 0' TERM; echo up >> {path}; sleep 600 & wait $!");
    let hooks = hooks.replace("JOURNAL", &path.to_string());
    let more = format!(
        r#""command":["/bin/sh","-c",{script:?}],"stop_grace_period":{grace},"on_disconnect":"keep","pre_stop":{hooks}"#
    );
    (payload_with("p", "none", &more), journal)
}

fn lines(journal: &PathBuf) -> Vec<String> {
    std::fs::read_to_string(journal).unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn told(rig: &Rig) -> Option<String> {
    let events = rig.store.last_events(100).await.unwrap();
    events.into_iter().find(|event| event.reason == "PodDrained").map(|event| event.message)
}

async fn until_up(rig: &Rig, journal: &PathBuf) {
    rig.until("p", Phase::Running).await;
    eventually("the pod is up", || async { lines(journal) == ["up"] }).await;
}

#[tokio::test]
async fn commands_run_one_after_the_other_before_the_signal() {
    let Some(rig) = Rig::new("commands_run_one_after_the_other_before_the_signal") else { return };
    let worker = rig.worker_on(Arc::new(ProcessRuntime::new(rig.config.data_dir.clone())));
    let hooks = r#"[{"command":["/bin/sh","-c","sleep 0.3; echo one >> JOURNAL"]},
        {"command":["/bin/sh","-c","echo two >> JOURNAL; echo not today; exit 7"]},{"command":["/no/such"]}]"#;
    let (payload, journal) = pod(&rig, hooks, 20);
    rig.push(&payload);
    until_up(&rig, &journal).await;
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    assert_eq!(lines(&journal), ["up", "one", "two", "TERM"]);
    let told = told(&rig).await.unwrap();
    assert!(told.contains("/bin/sh exited with code 7; it wrote: not today"), "{told}");
    assert!(told.contains("/no/such exited with code 127"), "{told}");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_command_that_hangs_takes_the_grace_period_and_no_more() {
    let Some(rig) = Rig::new("a_command_that_hangs_takes_the_grace_period_and_no_more") else { return };
    let worker = rig.worker_on(Arc::new(ProcessRuntime::new(rig.config.data_dir.clone())));
    let (payload, journal) = pod(&rig, r#"[{"command":["/bin/sleep","600"]}]"#, 2);
    rig.push(&payload);
    until_up(&rig, &journal).await;
    let begun = Instant::now();
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(lines(&journal), ["up", "TERM"]);
    assert!(told(&rig).await.unwrap().contains("/bin/sleep had not ended"));
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_ends_meanwhile_leaves_the_stop_to_the_next_one() {
    let Some(rig) = Rig::new("a_worker_that_ends_meanwhile_leaves_the_stop_to_the_next_one") else { return };
    let runtime = Arc::new(ProcessRuntime::new(rig.config.data_dir.clone()));
    let worker = rig.worker_on(runtime.clone());
    let hooks = r#"[{"command":["/bin/sh","-c","echo hook >> JOURNAL; sleep 2"]}]"#;
    let (payload, journal) = pod(&rig, hooks, 60);
    rig.push(&payload);
    until_up(&rig, &journal).await;
    rig.stop("p").await;
    eventually("the command runs", || async { lines(&journal) == ["up", "hook"] }).await;
    worker.end().await.unwrap();
    assert_eq!(lines(&journal), ["up", "hook"], "the pod runs on");
    let worker = rig.worker_on(runtime);
    rig.until("p", Phase::Stopped).await;
    assert_eq!(lines(&journal), ["up", "hook", "hook", "TERM"], "at least once");
    worker.end().await.unwrap();
}
