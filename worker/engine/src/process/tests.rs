//! Tests with real processes of this machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Child;
use std::time::Instant;

use futures_util::TryStreamExt;
use model::spec::ContainerSpec;
use tempfile::TempDir;

use super::folder::Record;
use super::pods::{CALL_TIMEOUT, UNKNOWN_EXIT_CODE};
use super::system::{kill_marked, marked};
use super::*;
use crate::ContainerState;
use crate::testing::identity;
use testkit::eventually;

struct Fixture {
    root: TempDir,
    runtime: ProcessRuntime,
    node: NodeName,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let runtime = ProcessRuntime::new(root.path().to_owned());
        Self { root, runtime, node: NodeName::new("node").unwrap() }
    }

    fn restarted(&self) -> ProcessRuntime {
        ProcessRuntime::new(self.root.path().to_owned())
    }

    async fn states(&self) -> Vec<ContainerState> {
        self.runtime.list(&self.node).await.unwrap().into_iter().map(|container| container.state).collect()
    }

    fn folder(&self, container: &Container) -> Folder {
        Folder::new(self.root.path(), &container.handle).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for pod in std::fs::read_dir(self.root.path().join("node")).into_iter().flatten().flatten() {
            kill_marked(&[pod.path()]);
        }
    }
}

fn request(pod: &str, script: &str) -> ContainerRequest {
    let mut container = ContainerSpec::from_image("ignored");
    container.command.0 = ["sh", "-c", script].map(str::to_owned).to_vec();
    ContainerRequest::new(identity("node", pod, "assignment"), container)
}

fn exited(code: i64) -> ContainerState {
    ContainerState::Exited { code, out_of_memory: false }
}

#[tokio::test]
async fn running_twice_is_one_process_and_a_new_worker_finds_it() {
    let fixture = Fixture::new();
    let request = request("twice", "echo $$ >> pids; exec sleep 600");
    let (one, two) = tokio::join!(fixture.runtime.run(&request), fixture.runtime.run(&request));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one, two);
    assert_eq!(one.state, ContainerState::Running);

    let restarted = fixture.restarted();
    assert_eq!(restarted.list(&fixture.node).await.unwrap(), std::slice::from_ref(&one));
    assert_eq!(restarted.run(&request).await.unwrap(), one);
    let work = fixture.folder(&one).work();
    let pids = eventually("one process wrote its id", || async {
        std::fs::read_to_string(work.join("pids")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(pids.await.lines().count(), 1);

    let mut hints = restarted.hints(&fixture.node).await.unwrap();
    let Some(PodState::Running(process)) = fixture.folder(&one).load().map(|record| record.state) else {
        panic!("runs")
    };
    process.signal_group(Signal::KILL);
    let hint = tokio::time::timeout(Duration::from_secs(10), hints.next()).await.unwrap().unwrap();
    assert_eq!((hint.pod, hint.handle), (Some(request.identity.pod), Some(one.handle.clone())));
    assert!(matches!(restarted.list(&fixture.node).await.unwrap()[0].state, ContainerState::Exited { .. }));
}

#[tokio::test]
async fn a_process_whose_worker_died_before_recording_its_id_is_found() {
    let fixture = Fixture::new();
    let request = request("starting", "exec sleep 600");
    let container = fixture.runtime.run(&request).await.unwrap();
    let folder = fixture.folder(&container);
    let written = folder.load().unwrap();
    folder.store(&Record { state: PodState::Starting, ..written.clone() }).unwrap();
    let restarted = fixture.restarted();
    assert_eq!(restarted.run(&request).await.unwrap().state, ContainerState::Running);
    assert_eq!(folder.load().unwrap(), written);
}

#[tokio::test]
async fn a_recycled_process_id_is_not_mistaken_for_the_pod() {
    let fixture = Fixture::new();
    let request = request("recycled", "exec sleep 600");
    let container = fixture.runtime.run(&request).await.unwrap();
    let folder = fixture.folder(&container);
    let record = folder.load().unwrap();
    // As if the id now belonged to a process with another start time.
    let mut text = serde_json::to_value(&record).unwrap();
    text["life"]["running"]["pid"] = std::process::id().into();
    folder.store(&serde_json::from_value(text).unwrap()).unwrap();
    let restarted = fixture.restarted();
    assert_eq!(restarted.list(&fixture.node).await.unwrap()[0].state, exited(UNKNOWN_EXIT_CODE));
    eventually("the remaining processes of the pod are killed", || async {
        marked(&folder.path).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn exit_codes_are_seen_and_a_restart_has_the_same_environment() {
    let fixture = Fixture::new();
    let mut request =
        request("exit", "echo $SECRET $HOME $(env | cut -d= -f1 | sort | tr '\\n' ' '); exit 3");
    request.container.environment.insert("SECRET", "hunter2".to_owned()).unwrap();
    let container = fixture.runtime.run(&request).await.unwrap();
    eventually("exited with 3", || async { (fixture.states().await == [exited(3)]).then_some(()) }).await;
    assert_eq!(fixture.runtime.run(&request).await.unwrap().state, exited(3), "run does not restart");

    let folder = fixture.folder(&container);
    let restarted = fixture.restarted();
    restarted.restart(&container.handle).await.unwrap();
    let log = eventually("two lines", || async {
        std::fs::read_to_string(folder.log()).ok().filter(|text| text.lines().count() == 2)
    });
    let line = format!("hunter2 {} HOME KUBELEET_DIR PATH PWD SECRET", folder.work().display());
    assert!(log.await.lines().all(|found| found.trim_end() == line));
    let shown = std::fs::read_to_string(folder.path.join("pod.json")).unwrap();
    assert!(shown.contains("SECRET") && !shown.contains("hunter2"), "{shown}");

    let missing = fixture.runtime.restart("node/missing").await;
    assert!(matches!(missing, Err(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn a_stop_waits_for_the_grace_period_and_ends_all_processes() {
    let fixture = Fixture::new();
    let graceful = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let graceful = fixture.runtime.run(&request("graceful", graceful)).await.unwrap();
    let mark = format!("600.{}", std::process::id());
    let stubborn = format!(
        "trap '' TERM; sleep 600 & setsid sleep 600 & env -i setsid sleep {mark} & echo ready; wait; sleep 600"
    );
    let stubborn = fixture.runtime.run(&request("stubborn", &stubborn)).await.unwrap();
    for container in [&graceful, &stubborn] {
        let log = fixture.folder(container).log();
        eventually("ready", || async { std::fs::read_to_string(&log).ok().filter(|text| text == "ready\n") })
            .await;
    }
    let begin = Instant::now();
    fixture.runtime.stop(&graceful.handle, Duration::from_secs(30)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "it ended by itself: {:?}", begin.elapsed());

    let begin = Instant::now();
    fixture.runtime.stop(&stubborn.handle, Duration::from_millis(500)).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(500), "it had its grace period: {:?}", begin.elapsed());
    assert_eq!(kill_marked(&[fixture.folder(&stubborn).path]), 0);
    eventually("the process without its environment has ended", || async {
        let mut all = procfs::process::all_processes().unwrap().flatten();
        let is_it =
            |process: procfs::process::Process| process.cmdline().is_ok_and(|words| words.contains(&mark));
        (!all.any(is_it)).then_some(())
    })
    .await;
    assert_eq!(fixture.states().await, []);
    fixture.runtime.stop(&stubborn.handle, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn logs_have_a_tail_and_follow_to_the_end() {
    let fixture = Fixture::new();
    let script = "echo one; echo two >&2; echo three; while [ ! -e end ]; do sleep 0.05; done; echo four";
    let container = fixture.runtime.run(&request("logs", script)).await.unwrap();
    let folder = fixture.folder(&container);
    eventually("three lines", || async {
        let lines = fixture.runtime.logs(&container.handle, 9, false).await.unwrap();
        let text = lines.try_collect::<Vec<Bytes>>().await.unwrap().concat();
        (text == b"one\ntwo\nthree\n").then_some(())
    })
    .await;
    let mut following = fixture.runtime.logs(&container.handle, 1, true).await.unwrap();
    assert_eq!(following.next().await.unwrap().unwrap(), "three\n");
    std::fs::write(folder.work().join("end"), "").unwrap();
    assert_eq!(following.next().await.unwrap().unwrap(), "four\n");
    assert!(following.next().await.is_none());
    let missing = fixture.runtime.logs("node/missing", 1, false).await;
    assert!(matches!(missing.err(), Some(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn a_pod_that_cannot_start_leaves_nothing() {
    let fixture = Fixture::new();
    let mut no_command = request("nothing", "");
    no_command.container.command.0.clear();
    let mut no_program = request("nothing", "");
    no_program.container.command.0 = vec!["no-such-program".to_owned()];
    let error = fixture.runtime.run(&no_command).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Refused(text) if text.contains("`command`")), "{error:?}");
    let error = fixture.runtime.run(&no_program).await.unwrap_err();
    let expected = "the command \"no-such-program\" cannot be started: No such file or directory";
    assert_eq!(error, RuntimeError::Failed(expected.to_owned()));
    assert_eq!(fixture.states().await, []);
}

#[tokio::test]
async fn limits_reach_the_process() {
    let fixture = Fixture::new();
    let mut request = request("limits", "sleep 0.2; ulimit -d; ulimit -c; exec sleep 600");
    request.container.memory = Some("64MiB".parse().unwrap());
    let container = fixture.runtime.run(&request).await.unwrap();
    let log = fixture.folder(&container).log();
    eventually("its limits", || async {
        std::fs::read_to_string(&log).ok().filter(|text| text == "65536\n0\n")
    })
    .await;
}

const WORKER_ROOT: &str = "KUBELEET_TEST_WORKER_ROOT";

/// Not a test by itself: the next test kills it.
#[tokio::test]
#[ignore = "run by pods_outlive_a_killed_worker in a process of its own"]
async fn a_worker_to_be_killed() {
    let Ok(root) = std::env::var(WORKER_ROOT) else { return };
    ProcessRuntime::new(root.into()).run(&request("outlives", "exec sleep 600")).await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn pods_outlive_a_killed_worker() {
    let fixture = Fixture::new();
    struct Worker(Child);
    impl Drop for Worker {
        fn drop(&mut self) {
            let _ended = self.0.kill();
            let _status = self.0.wait();
        }
    }
    let worker = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "process::tests::a_worker_to_be_killed"])
        .env(WORKER_ROOT, fixture.root.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let worker = Worker(worker);
    let running = || async { (fixture.states().await == [ContainerState::Running]).then_some(()) };
    eventually("the pod runs", running).await;
    drop(worker);

    let restarted = fixture.restarted();
    let [container] = &restarted.list(&fixture.node).await.unwrap()[..] else { panic!("one pod") };
    assert_eq!(container.state, ContainerState::Running);
    let Some(PodState::Running(process)) = fixture.folder(container).load().map(|record| record.state) else {
        panic!()
    };
    process.signal_group(Signal::KILL);
    eventually("its end is seen, its exit code unknown", || async {
        let containers = restarted.list(&fixture.node).await.unwrap();
        (containers[0].state == exited(UNKNOWN_EXIT_CODE)).then_some(())
    })
    .await;
    restarted.restart(&container.handle).await.unwrap();
    assert_eq!(fixture.states().await, [ContainerState::Running]);
}

#[tokio::test]
async fn the_exit_code_is_kept_however_long_the_lock_of_the_node_is_waited_for() {
    let fixture = Fixture::new();
    let request = request("short", "sleep 0.2; exit 3");
    fixture.runtime.run(&request).await.unwrap();
    let lock = std::fs::File::open(fixture.root.path().join("node/.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    tokio::time::sleep(CALL_TIMEOUT + Duration::from_secs(1)).await;
    drop(lock);
    eventually("its end is known", || async { (fixture.states().await == [exited(3)]).then_some(()) }).await;
}

async fn exec(fixture: &Fixture, handle: &str, script: &str, limit: Duration) -> ExecResult {
    let command = ["sh", "-c", script].map(str::to_owned);
    fixture.runtime.exec(handle, &command, limit).await.unwrap()
}

#[tokio::test]
async fn a_command_runs_beside_the_pod_with_its_folder_and_environment() {
    let fixture = Fixture::new();
    let mut request = request("exec", "echo here > file; echo ready; exec sleep 600");
    request.container.environment.insert("GREETING", "hello".to_owned()).unwrap();
    let container = fixture.runtime.run(&request).await.unwrap();
    let work = fixture.folder(&container).work();
    eventually("the pod has written its file", || async { work.join("file").exists().then_some(()) }).await;

    let long = Duration::from_secs(30);
    let script = "cat file; echo $GREETING >&2; exit 3";
    let result = exec(&fixture, &container.handle, script, long).await;
    assert_eq!(result, ExecResult { exit_code: Some(3), output: "here\nhello\n".to_owned() });
    let result =
        exec(&fixture, &container.handle, "head -c 1000000 /dev/zero | tr '\\0' a; echo end", long).await;
    assert_eq!((result.exit_code, result.output.len()), (Some(0), 4096));
    assert!(result.output.ends_with("aend\n"));
    let missing = ["/no/such/program".to_owned()];
    let result = fixture.runtime.exec(&container.handle, &missing, long).await.unwrap();
    assert_eq!(result.exit_code, Some(127));
    assert!(result.output.contains("/no/such/program"), "{result:?}");
    let result = exec(&fixture, &container.handle, "sleep 600 & echo left", long).await;
    assert_eq!(result, ExecResult { exit_code: Some(0), output: "left\n".to_owned() });

    fixture.runtime.stop(&container.handle, Duration::from_secs(5)).await.unwrap();
    assert_eq!(marked(&fixture.folder(&container).path).len(), 0);
    let gone = fixture.runtime.exec(&container.handle, &missing, long).await;
    assert!(matches!(gone, Err(RuntimeError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let fixture = Fixture::new();
    let container = fixture.runtime.run(&request("slow", "exec sleep 600")).await.unwrap();
    let path = fixture.folder(&container).path;
    let result =
        exec(&fixture, &container.handle, "echo begun; sleep 500; echo no", Duration::from_secs(2)).await;
    assert_eq!(result, ExecResult { exit_code: None, output: "begun\n".to_owned() });
    eventually("only the pod is left", || async { (marked(&path).len() == 1).then_some(()) }).await;
    let given_up = tokio::time::timeout(
        Duration::from_millis(300),
        exec(&fixture, &container.handle, "sleep 500", CALL_TIMEOUT),
    );
    assert!(given_up.await.is_err());
    eventually("only the pod is left", || async { (marked(&path).len() == 1).then_some(()) }).await;
    assert_eq!(fixture.states().await, [ContainerState::Running]);
}

#[tokio::test]
async fn a_command_is_not_taken_for_the_pods_process() {
    let fixture = Fixture::new();
    let handle = "node/web-3-0000000000";
    let folder = Folder::new(fixture.root.path(), handle).unwrap();
    folder.create().unwrap();
    folder.store_environment(&std::collections::BTreeMap::new()).unwrap();
    let own = ProcessIdentity::of(std::process::id() as i32).unwrap();
    let record = Record { state: PodState::Running(own), ..Record::starting(&request("leader", "")) };
    folder.store(&record).unwrap();
    let look = async {
        eventually("the command runs", || async { (marked(&folder.path).len() == 1).then_some(()) }).await;
        find_leader(&folder.path)
    };
    tokio::select! {
        found = look => assert_eq!(found, None),
        result = exec(&fixture, handle, "exec sleep 500", Duration::from_secs(60)) => panic!("{result:?}"),
    }
}

#[tokio::test]
async fn many_pods_that_ignore_the_request_to_stop_end_together_at_the_given_moment() {
    let fixture = Fixture::new();
    let script = "trap '' TERM; setsid sleep 600 & while :; do sleep 600; done";
    let mut containers = Vec::new();
    for number in 0..40 {
        containers.push(fixture.runtime.run(&request(&format!("many{number}"), script)).await.unwrap());
    }
    let folders: Vec<_> = containers.iter().map(|container| fixture.folder(container).path).collect();
    let running = || folders.iter().filter(|folder| !marked(folder).is_empty()).count();
    assert_eq!(running(), 40);
    let begun = Instant::now();
    let kill_by = tokio::time::Instant::now() + Duration::from_secs(1);
    fixture.runtime.end_all(&containers, kill_by).await.unwrap();
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(990) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(running(), 0);
    assert_eq!(fixture.states().await.len(), 40, "they are kept");
}
