//! Scenarios of workers that hang or die, and of their supervisors.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::{alone, beside_others};
use kubeleet_tests::overlap::{
    Fault, break_binary, measure_gaps, measure_many, measure_resumed_pods, private_binary, replace_binary,
};
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Http, pod_life};
use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, kill_process, prlimit};
use serde_json::json;
use testkit::eventually::{check, eventually_within};
use testkit::require;

use crate::{SOON, tries};

struct SupervisedNode {
    cluster: Cluster,
    http: Http,
    worker: DaemonProcess,
    _others: [DaemonProcess; 2],
}

impl SupervisedNode {
    async fn new(timing: ClusterTiming) -> Self {
        let cluster = Cluster::new(timing).await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let binary = private_binary(&cluster.folder().join("own"));
        let worker = cluster.worker("w1", "process").instead(&binary, "worker");
        let http = api.http();
        http.nodes_ready(1).await;
        for name in ["stop", "keep"] {
            let command = ["sleep", "86400"];
            let service = json!({
                "name": name, "image": "none", "command": command, "replicas": 2, "on_disconnect": name,
            });
            http.post("/service", &service).await;
            http.runs(SOON, name, 2).await;
        }
        Self { cluster, http, worker, _others: [api, scheduler] }
    }

    async fn processes(&self, service: &str) -> Vec<i64> {
        let pods = self.http.pods(&format!("service={service}")).await;
        let leaders: BTreeMap<String, i64> = self.cluster.processes.leaders().into_iter().collect();
        let mut found: Vec<i64> =
            pods.iter().filter_map(|pod| leaders.get(pod["uuid"].as_str().unwrap()).copied()).collect();
        found.sort_unstable();
        found
    }

    async fn wait_until_registered_again(&self, before: &str) {
        eventually_within(SOON, "the worker registers again", || async {
            check(self.cluster.incarnation("w1").await != before, || self.worker.log())
        })
        .await;
    }

    async fn wait_until_none_runs(&self, service: &str) {
        eventually_within(SOON, &format!("no pod of {service} runs"), || async {
            let left = self.processes(service).await;
            check(left.is_empty(), || format!("{left:?}\n{}", self.worker.log()))
        })
        .await;
    }

    fn break_worker(&self) {
        break_binary(&self.cluster.folder().join("own/kubeleet"));
    }
}

fn send(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_or_is_killed_is_restarted_and_its_pods_run_on() {
    let _lock = beside_others().await;
    // Half of the time until the fence is left then, so the lease must be valid for 2 s.
    let node = SupervisedNode::new(ClusterTiming::Default).await;
    let (stop, keep) = (node.processes("stop").await, node.processes("keep").await);
    for signal in [Signal::KILL, Signal::STOP] {
        let (worker, before) =
            (node.worker.supervised_worker().unwrap(), node.cluster.incarnation("w1").await);
        send(worker, signal);
        node.wait_until_registered_again(&before).await;
        pod_life::wait_until_gone(worker, SOON).await;
    }
    node.http.runs(SOON, "stop", 2).await;
    assert_eq!((node.processes("stop").await, node.processes("keep").await), (stop, keep));
    let log = node.worker.whole_log();
    assert!(log.contains("signal 9") && log.contains("hangs"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_whose_worker_cannot_be_started_stops_the_stop_pods_and_no_others() {
    let _lock = beside_others().await;
    let node = SupervisedNode::new(ClusterTiming::Short).await;
    let keep = node.processes("keep").await;
    let own = node.cluster.folder().join("own/kubeleet");
    let backup = own.with_extension("backup");
    std::fs::hard_link(&own, &backup).unwrap();
    node.break_worker();
    let before = node.cluster.incarnation("w1").await;
    send(node.worker.supervised_worker().unwrap(), Signal::KILL);
    node.wait_until_none_runs("stop").await;
    assert_eq!(node.processes("keep").await, keep);
    std::fs::rename(&backup, &own).unwrap();
    node.wait_until_registered_again(&before).await;
    node.http.runs(SOON, "stop", 2).await;
    node.http.runs(SOON, "keep", 2).await;
    let pods = || async { node.cluster.processes.running() };
    node.cluster.comes_to_rest(SOON, &["w1"], pods).await;
}

/// As documented in docs/concepts/failure-detection.md.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_supervisor_a_worker_goes_on_until_the_next_supervisor_takes_over() {
    let _lock = beside_others().await;
    let mut node = SupervisedNode::new(ClusterTiming::Short).await;
    let pods = (node.processes("stop").await, node.processes("keep").await);
    let (unsupervised, before) =
        (node.worker.supervised_worker().unwrap(), node.cluster.incarnation("w1").await);
    node.worker.signal(Signal::KILL);
    eventually_within(SOON, "the worker notices the loss of its supervisor", || async {
        check(node.worker.log().contains("supervisor of this worker is gone"), || node.worker.log())
    })
    .await;
    tokio::time::sleep(ClusterTiming::Short.dead_after() + Duration::from_secs(1)).await;
    assert_eq!(
        node.cluster.incarnation("w1").await,
        before,
        "it was not declared dead and did not register again"
    );

    let next = node.cluster.worker("w1", "process");
    node.wait_until_registered_again(&before).await;
    pod_life::wait_until_gone(unsupervised, SOON).await;
    assert_eq!((node.processes("stop").await, node.processes("keep").await), pods, "the same processes");

    let third = node.cluster.worker("w1", "process");
    eventually_within(SOON, "a second supervisor is refused", || async {
        check(third.ended_with() == Some(4), || third.log())
    })
    .await;
    assert!(third.log().contains("runs on this machine already"), "{}", third.log());

    next.signal(Signal::KILL);
    node.cluster.redis.freeze();
    node.wait_until_processes(2).await;
    node.cluster.redis.thaw();
    assert!(next.ended().is_some());
    node.worker = next;
}

impl SupervisedNode {
    async fn wait_until_processes(&self, left: usize) {
        eventually_within(SOON, "only the pods that may run on are left", || async {
            let running = self.cluster.processes.running();
            check(running.len() == left, || format!("{running:?}"))
        })
        .await;
    }
}

/// The systemd unit starts it when supervisor and worker have ended.
#[tokio::test(flavor = "multi_thread")]
async fn fence_only_waits_for_the_end_of_the_lease_and_fences() {
    let _lock = beside_others().await;
    let mut node = SupervisedNode::new(ClusterTiming::Short).await;
    let keep = node.processes("keep").await;

    node.worker.kill();
    let mut fence = node
        .cluster
        .worker("w1", "process")
        .instead(kubeleet_tests::cluster::binary(), "worker --fence-only");
    node.worker.start_again();
    eventually_within(SOON, "it ends", || async { check(fence.ended_with() == Some(0), || fence.log()) })
        .await;
    assert!(fence.log().contains("a worker is back"), "{}", fence.log());
    node.http.runs(SOON, "stop", 2).await;

    node.worker.kill();
    fence.start_again();
    let running = node.cluster.processes.running().len();
    assert_eq!(running, 4, "the lease is still valid");
    eventually_within(SOON, "it has fenced", || async {
        check(fence.ended_with() == Some(0), || fence.log())
    })
    .await;
    assert_eq!(node.processes("keep").await, keep);
    assert_eq!(node.cluster.processes.running().len(), 2);
}

/// There is no memory for the stack of a thread.
#[tokio::test(flavor = "multi_thread")]
async fn fence_only_goes_on_after_it_could_not_start_a_thread() {
    let _lock = beside_others().await;
    let mut node = SupervisedNode::new(ClusterTiming::Short).await;
    node.worker.kill();
    let binary = kubeleet_tests::cluster::binary();
    let mut fence = node.cluster.worker("w1", "process").instead(binary, "worker --fence-only");
    eventually_within(SOON, "it waits for the lease", || async {
        check(fence.log().contains("waiting"), || fence.log())
    })
    .await;
    let pid = Pid::from_raw(fence.id().unwrap().cast_signed()).unwrap();
    limit_memory(pid, Some(memory(pid) + (1 << 20)));
    eventually_within(SOON, "no thread can be started", || async {
        check(fence.log().contains("no thread can be started"), || fence.log())
    })
    .await;
    assert_eq!(node.cluster.processes.running().len(), 4, "no pod was stopped");
    limit_memory(pid, None);
    eventually_within(SOON, "it has fenced", || async {
        check(fence.ended_with() == Some(0), || fence.log())
    })
    .await;
    assert_eq!(node.cluster.processes.running().len(), 2);
    fence.kill();
}

fn memory(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    size.unwrap().trim().parse::<u64>().unwrap() * 1024
}

fn limit_memory(pid: Pid, bytes: Option<u64>) {
    prlimit(Some(pid), Resource::As, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// Or 128 plus the signal that ended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_ends_with_the_exit_code_of_its_worker() {
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let until_terminated = "trap ': >\"$0.terminated\"; [ $1 = stay ] || exit 7' TERM; : >\"$0.up\"; while :; do sleep 0.1; done";
    for (name, lines, expected) in [
        ("misconfigured", "exit 2".to_owned(), 2),
        ("terminated", format!("set go; {until_terminated}"), 7),
        ("killed", format!("set stay; {until_terminated}"), 137),
    ] {
        let own = private_binary(&cluster.folder().join(name));
        let supervisor = cluster.worker(name, "process").instead(&own, "worker");
        let worker = async || {
            eventually_within(SOON, "there is a worker", || async {
                supervisor.supervised_worker().ok_or_else(|| supervisor.log())
            })
            .await
        };
        let done = async |step: &str| {
            let file = own.with_extension(step);
            eventually_within(SOON, step, || async { check(file.exists(), || supervisor.log()) }).await;
        };
        let real_worker = worker().await;
        replace_binary(&own, &lines);
        send(real_worker, Signal::KILL);
        if name != "misconfigured" {
            done("up").await;
            supervisor.signal(Signal::TERM);
            done("terminated").await;
        }
        if name == "killed" {
            send(worker().await, Signal::KILL);
        }
        eventually_within(SOON, "the supervisor ends", || async {
            check(supervisor.ended_with() == Some(expected), || {
                format!("{:?}\n{}", supervisor.ended(), supervisor.log())
            })
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_process_1_reaps_the_processes_that_pods_leave_behind() {
    if !geteuid().is_root() {
        return require::skipped("netns", "only root may create a namespace");
    }
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let entry = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let outside = cluster.worker_within(&entry, "w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let supervisor = outside.supervised_worker().unwrap();
    let worker = *children(supervisor).first().expect("the supervisor has a worker");
    // It reads until the process has left the group, which ends with the pod.
    let command = ["sh", "-c", "left=$(setsid sh -c 'exec sleep 3 >/dev/null' &)"];
    let service = json!({"name": "web", "image": "none", "command": command, "replicas": 5, "restart": "no"});
    http.post("/service", &service).await;
    eventually_within(SOON, "the supervisor inherits a process", || async {
        let inherited = children(supervisor);
        check(inherited.len() > 1, || format!("{inherited:?}\n{}", outside.log()))
    })
    .await;
    eventually_within(SOON, "all pods have ended", || async {
        let pods = http.pods("service=web").await;
        check(pods.iter().all(|pod| pod["phase"] == "succeeded") && pods.len() == 5, || format!("{pods:?}"))
    })
    .await;
    eventually_within(SOON, "only the worker is left", || async {
        let left = children(supervisor);
        check(left == [worker], || format!("{left:?}, {worker}\n{}", outside.log()))
    })
    .await;
    assert_eq!(outside.ended(), None, "{}", outside.log());
}

fn children(pid: Pid) -> Vec<i32> {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// The messages of `Type=notify`.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_manager_is_notified_of_start_liveness_and_stop() {
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let path = cluster.folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let settings = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut worker = cluster.worker_with("w1", "process", &settings);
    let wait_for = |wanted: &str| {
        let deadline = Instant::now() + SOON;
        let mut received = String::new();
        while Instant::now() < deadline && !received.lines().any(|line| line.starts_with(wanted)) {
            let mut text = [0; 1024];
            let length = socket.recv(&mut text).unwrap();
            received += std::str::from_utf8(&text[..length]).unwrap();
        }
        assert!(received.lines().any(|line| line.starts_with(wanted)), "{wanted} is missing in {received}");
    };
    wait_for("READY=1");
    wait_for("STATUS=");
    wait_for("WATCHDOG=1");
    // The supervisor will restart the worker itself.
    send(worker.supervised_worker().unwrap(), Signal::STOP);
    wait_for("WATCHDOG=1");
    let ended = std::thread::spawn(move || (worker.terminate(), worker));
    wait_for("STOPPING=1");
    ended.join().unwrap();
}

#[derive(Default)]
struct Figures(BTreeMap<&'static str, Vec<i64>>);

impl Figures {
    fn add(&mut self, figures: BTreeMap<&'static str, i64>) {
        for (runtime, figure) in figures {
            self.0.entry(runtime).or_default().push(figure);
        }
    }

    fn rows(&self, title: &str) -> String {
        let line = |(runtime, figures): (&&str, &Vec<i64>)| {
            let mut figures = figures.clone();
            figures.sort_unstable();
            let (least, median, most) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
            format!("| {title} | {runtime} | {} | {least} | {median} | {most} |\n", figures.len())
        };
        self.0.iter().map(line).collect()
    }

    fn smallest(&self) -> i64 {
        self.0.values().flatten().copied().min().unwrap_or(i64::MIN)
    }
}

/// The test runner hides what tests print that pass.
fn show(what: &str, lines: &str) {
    let head = format!("{what}, ms\n| | pods | tries | least | median | most |\n|---|---|---|---|---|---|\n");
    std::io::stderr().write_all(format!("{head}{lines}").as_bytes()).unwrap();
}

/// Invariant 5 as measured.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_between_the_end_of_a_pod_and_its_start_elsewhere_are_never_negative() {
    let _lock = alone().await;
    let (mut lines, mut least) = (String::new(), i64::MAX);
    for fault in Fault::ALL {
        let mut figures = Figures::default();
        for _ in 0..tries(2) {
            figures.add(measure_gaps(fault).await);
        }
        lines += &figures.rows(fault.description());
        least = least.min(figures.smallest());
    }
    show("from the end of a pod to its start elsewhere", &lines);
    assert!(least >= 0, "a pod ran twice:\n{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_are_never_negative_for_as_many_pods_as_a_node_may_have() {
    let _lock = alone().await;
    let is_long = std::env::var("KUBELEET_GAPS").is_ok();
    let (processes, containers) = if is_long { (250, 100) } else { (70, 10) };
    let (mut lines, mut least) = (String::new(), i64::MAX);
    for (runtime, pods) in [("process", processes), ("docker", containers)] {
        let mut figures = Figures::default();
        for _ in 0..tries(2).div_ceil(4) {
            figures.add(measure_many(runtime, pods).await.map(|gap| (runtime, gap)).into_iter().collect());
        }
        lines += &figures.rows(&format!("{pods} pods on a node"));
        least = least.min(figures.0.values().flatten().copied().min().unwrap_or(i64::MAX));
    }
    show("from the end of the last pod to the first start elsewhere", &lines);
    assert!(least >= 0, "pods ran twice:\n{lines}");
}

/// A machine that was suspended as a whole can only react when it is resumed.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_cannot_be_kept_by_a_suspended_machine_but_it_stops_its_copies_when_resumed() {
    let _lock = alone().await;
    let mut figures = Figures::default();
    for _ in 0..tries(2).div_ceil(2) {
        figures.add(measure_resumed_pods().await);
    }
    show("from the resumption of a machine to the end of its old copies", &figures.rows("machine suspended"));
    assert!(figures.0.values().flatten().all(|lasted| *lasted < 10_000), "{:?}", figures.0);
}
