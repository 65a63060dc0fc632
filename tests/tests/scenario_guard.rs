//! Scenarios of workers that hang or die, and of what their guards do about it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::gaps::{Fault, after_a_standstill, break_binary, once, own_binary, replace_binary};
use kubeleet_tests::wait::that;
use kubeleet_tests::{Cluster, Daemon, Http, Timing, eventually, life, require};
use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, kill_process, prlimit};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

/// A cluster with one node of process pods, and on it two pods that must stop without a lease and two that may run on.
struct Scene {
    cluster: Cluster,
    http: Http,
    worker: Daemon,
    _others: [Daemon; 2],
}

impl Scene {
    async fn new(timing: Timing) -> Self {
        let cluster = Cluster::new(timing).await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let binary = own_binary(&cluster.folder().join("own"));
        let worker = cluster.worker("w1", "process").instead(&binary, "worker");
        let http = api.http();
        http.nodes_ready(1).await;
        for name in ["stop", "keep"] {
            let command = ["sleep", "86400"];
            let service = json!({"name": name, "image": "none", "command": command, "replicas": 2, "on_disconnect": name});
            http.post("/service", &service).await;
            http.runs(SOON, name, 2).await;
        }
        Self { cluster, http, worker, _others: [api, scheduler] }
    }

    /// The processes of the pods of one of the two services, sorted.
    async fn processes(&self, service: &str) -> Vec<i64> {
        let pods = self.http.pods(&format!("service={service}")).await;
        let leaders: BTreeMap<String, i64> = self.cluster.processes.leaders().into_iter().collect();
        let mut found: Vec<i64> =
            pods.iter().filter_map(|pod| leaders.get(pod["uuid"].as_str().unwrap()).copied()).collect();
        found.sort_unstable();
        found
    }

    async fn incarnation(&self) -> String {
        self.cluster.redis.cli(&["HGET", &format!("node:{}", self.cluster.node("w1")), "incarnation"]).await
    }

    async fn registers_again(&self, before: &str) {
        eventually(SOON, "the worker registers again", || async {
            that(self.incarnation().await != before, || self.worker.log())
        })
        .await;
    }

    async fn runs_none(&self, service: &str) {
        eventually(SOON, &format!("no pod of {service} runs"), || async {
            let left = self.processes(service).await;
            that(left.is_empty(), || format!("{left:?}\n{}", self.worker.log()))
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

/// With time until the fence a hung or killed worker is replaced, and its pods do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_or_is_killed_is_started_again_and_its_pods_run_on() {
    let _alone = exclusive("heavy").await;
    // The lease is good for two seconds more when half of the fence's time is over.
    let scene = Scene::new(Timing::Default).await;
    let (stop, keep) = (scene.processes("stop").await, scene.processes("keep").await);
    for signal in [Signal::KILL, Signal::STOP] {
        let (worker, before) = (scene.worker.guarded().unwrap(), scene.incarnation().await);
        send(worker, signal);
        scene.registers_again(&before).await;
        life::is_gone(worker, SOON).await;
    }
    scene.http.runs(SOON, "stop", 2).await;
    assert_eq!((scene.processes("stop").await, scene.processes("keep").await), (stop, keep));
    let log = scene.worker.whole_log();
    assert!(log.contains("signal 9") && log.contains("hangs"), "{log}");
}

/// Nobody can start the worker again: the guard holds the fence for as long as that is so, and then goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_whose_worker_can_not_be_started_stops_what_must_not_run_and_nothing_else() {
    let _alone = exclusive("heavy").await;
    let scene = Scene::new(Timing::Short).await;
    let keep = scene.processes("keep").await;
    let own = scene.cluster.folder().join("own/kubeleet");
    let whole = own.with_extension("whole");
    std::fs::hard_link(&own, &whole).unwrap();
    scene.break_worker();
    let before = scene.incarnation().await;
    send(scene.worker.guarded().unwrap(), Signal::KILL);
    scene.runs_none("stop").await;
    assert_eq!(scene.processes("keep").await, keep);
    std::fs::rename(&whole, &own).unwrap();
    scene.registers_again(&before).await;
    scene.http.runs(SOON, "stop", 2).await;
    scene.http.runs(SOON, "keep", 2).await;
    let pods = || async { scene.cluster.processes.running() };
    scene.cluster.comes_to_rest(SOON, &["w1"], pods).await;
}

/// What docs/OPERATIONS.md says: the worker goes on, holds the fence alone, and the next guard takes over from it.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_guard_a_worker_goes_on_until_the_next_guard_takes_over() {
    let _alone = exclusive("heavy").await;
    let mut scene = Scene::new(Timing::Short).await;
    let pods = (scene.processes("stop").await, scene.processes("keep").await);
    let (orphan, before) = (scene.worker.guarded().unwrap(), scene.incarnation().await);
    scene.worker.signal(Signal::KILL);
    eventually(SOON, "the worker has noticed", || async {
        that(scene.worker.log().contains("guard of this worker is gone"), || scene.worker.log())
    })
    .await;
    // Longer than a death takes.
    tokio::time::sleep(Timing::Short.dead_after() + Duration::from_secs(1)).await;
    assert_eq!(scene.incarnation().await, before, "it is alive: it has not had to register again");

    // A second process in the first one's folder, under the same name.
    let next = scene.cluster.worker("w1", "process");
    scene.registers_again(&before).await;
    life::is_gone(orphan, SOON).await;
    assert_eq!((scene.processes("stop").await, scene.processes("keep").await), pods, "the same processes");

    // While it lives there can be no other.
    let third = scene.cluster.worker("w1", "process");
    eventually(SOON, "a second guard is refused", || async {
        that(third.ended_with() == Some(4), || third.log())
    })
    .await;
    assert!(third.log().contains("runs on this machine already"), "{}", third.log());

    // Again without a guard, and without Redis: it fences itself.
    next.signal(Signal::KILL);
    scene.cluster.redis.freeze();
    scene.runs_none_by_folder(2).await;
    scene.cluster.redis.thaw();
    assert!(next.ended().is_some());
    drop(std::mem::replace(&mut scene.worker, next));
}

impl Scene {
    /// Without asking the API: so many processes are left.
    async fn runs_none_by_folder(&self, left: usize) {
        eventually(SOON, "only what may run on does", || async {
            let running = self.cluster.processes.running();
            that(running.len() == left, || format!("{running:?}"))
        })
        .await;
    }
}

/// `kubeleet worker --fence-only`, which the systemd unit starts when guard and worker are gone.
#[tokio::test(flavor = "multi_thread")]
async fn when_guard_and_worker_are_gone_the_last_resort_waits_for_the_lease_and_fences() {
    let _alone = exclusive("heavy").await;
    let mut scene = Scene::new(Timing::Short).await;
    let keep = scene.processes("keep").await;

    // A worker that comes back makes it end without doing anything.
    scene.worker.kill();
    let mut fence = scene
        .cluster
        .worker("w1", "process")
        .instead(kubeleet_tests::cluster::binary(), "worker --fence-only");
    scene.worker.start_again();
    eventually(SOON, "it ends", || async { that(fence.ended_with() == Some(0), || fence.log()) }).await;
    assert!(fence.log().contains("a worker is back"), "{}", fence.log());
    scene.http.runs(SOON, "stop", 2).await;

    scene.worker.kill();
    fence.start_again();
    let running = scene.cluster.processes.running().len();
    assert_eq!(running, 4, "the lease is good");
    eventually(SOON, "it has fenced", || async { that(fence.ended_with() == Some(0), || fence.log()) }).await;
    assert_eq!(scene.processes("keep").await, keep);
    assert_eq!(scene.cluster.processes.running().len(), 2);
}

/// No room for the stack of a thread: the look that could not begin is tried again, and not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_resort_goes_on_when_it_could_not_start_a_thread() {
    let _alone = exclusive("heavy").await;
    let mut scene = Scene::new(Timing::Short).await;
    scene.worker.kill();
    let binary = kubeleet_tests::cluster::binary();
    let mut fence = scene.cluster.worker("w1", "process").instead(binary, "worker --fence-only");
    eventually(SOON, "it waits for the lease", || async {
        that(fence.log().contains("waiting"), || fence.log())
    })
    .await;
    let pid = Pid::from_raw(fence.id().unwrap().cast_signed()).unwrap();
    limit_memory(pid, Some(memory(pid) + (1 << 20)));
    eventually(SOON, "no thread can be started", || async {
        that(fence.log().contains("no thread can be started"), || fence.log())
    })
    .await;
    assert_eq!(scene.cluster.processes.running().len(), 4, "nothing was stopped");
    limit_memory(pid, None);
    eventually(SOON, "it has fenced", || async { that(fence.ended_with() == Some(0), || fence.log()) }).await;
    assert_eq!(scene.cluster.processes.running().len(), 2);
    fence.kill();
}

/// The address space of a process, in bytes.
fn memory(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    size.unwrap().trim().parse::<u64>().unwrap() * 1024
}

fn limit_memory(pid: Pid, bytes: Option<u64>) {
    prlimit(Some(pid), Resource::As, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// As its worker ends when it can not go on, or was asked to: with its code, or with 128 and the signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_ends_as_its_worker_did() {
    let cluster = Cluster::new(Timing::Default).await;
    let until_asked =
        "trap ': >\"$0.asked\"; [ $1 = stay ] || exit 7' TERM; : >\"$0.up\"; while :; do sleep 0.1; done";
    for (name, lines, expected) in [
        // A configuration that makes no sense is no reason to try again.
        ("hopeless", "exit 2".to_owned(), 2),
        ("asked", format!("set go; {until_asked}"), 7),
        ("killed", format!("set stay; {until_asked}"), 137),
    ] {
        let own = own_binary(&cluster.folder().join(name));
        let guard = cluster.worker(name, "process").instead(&own, "worker");
        let worker = async || {
            eventually(SOON, "there is a worker", || async { guard.guarded().ok_or_else(|| guard.log()) })
                .await
        };
        let done = async |what: &str| {
            let sign = own.with_extension(what);
            eventually(SOON, what, || async { that(sign.exists(), || guard.log()) }).await;
        };
        let real = worker().await;
        replace_binary(&own, &lines);
        send(real, Signal::KILL);
        if name != "hopeless" {
            done("up").await;
            guard.signal(Signal::TERM);
            done("asked").await;
        }
        if name == "killed" {
            send(worker().await, Signal::KILL);
        }
        eventually(SOON, "the guard ends", || async {
            that(guard.ended_with() == Some(expected), || format!("{:?}\n{}", guard.ended(), guard.log()))
        })
        .await;
    }
}

/// As in a container: what pods leave behind becomes the guard's child, and it buries it.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_process_1_buries_what_nobody_else_does() {
    if !geteuid().is_root() {
        return require::skipped("netns", "only root may make a namespace");
    }
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let entry = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let outside = cluster.worker_within(&entry, "w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let guard = outside.guarded().unwrap();
    let worker = *children(guard).first().expect("the guard has a worker");
    // Each leaves a process behind that ends a little later.
    let command = ["sh", "-c", "(setsid sleep 3 &) ; exit 0"];
    let service = json!({"name": "web", "image": "none", "command": command, "replicas": 5, "restart": "no"});
    http.post("/service", &service).await;
    eventually(SOON, "the guard inherits", || async {
        let inherited = children(guard);
        that(inherited.len() > 1, || format!("{inherited:?}\n{}", outside.log()))
    })
    .await;
    eventually(SOON, "all have ended", || async {
        let pods = http.pods("service=web").await;
        that(pods.iter().all(|pod| pod["phase"] == "succeeded") && pods.len() == 5, || format!("{pods:?}"))
    })
    .await;
    eventually(SOON, "nothing but the worker is left", || async {
        let left = children(guard);
        that(left == [worker], || format!("{left:?}, {worker}\n{}", outside.log()))
    })
    .await;
    assert_eq!(outside.ended(), None, "{}", outside.log());
}

/// Children of a process, dead ones that nobody has buried included.
fn children(pid: Pid) -> Vec<i32> {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// `Type=notify`: started, alive, ending.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_manager_is_told_what_it_wants_to_know() {
    let cluster = Cluster::new(Timing::Short).await;
    let path = cluster.folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let settings = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut worker = cluster.worker_with("w1", "process", &settings);
    let until = |wanted: &str| {
        let deadline = Instant::now() + SOON;
        let mut heard = String::new();
        while Instant::now() < deadline && !heard.lines().any(|line| line.starts_with(wanted)) {
            let mut text = [0; 1024];
            let length = socket.recv(&mut text).unwrap();
            heard += std::str::from_utf8(&text[..length]).unwrap();
        }
        assert!(heard.lines().any(|line| line.starts_with(wanted)), "{wanted} is missing in {heard}");
    };
    until("READY=1");
    until("STATUS=");
    until("WATCHDOG=1");
    // A worker that hangs is the guard's business.
    send(worker.guarded().unwrap(), Signal::STOP);
    until("WATCHDOG=1");
    let ended = std::thread::spawn(move || (worker.terminate(), worker));
    until("STOPPING=1");
    ended.join().unwrap();
}

/// How many tries of each fault: two in CI, twenty for `make gaps`.
fn tries() -> usize {
    std::env::var("KUBELEET_GAPS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// The figures of many tries, in milliseconds, by runtime.
#[derive(Default)]
struct Figures(BTreeMap<&'static str, Vec<i64>>);

impl Figures {
    fn add(&mut self, figures: BTreeMap<&'static str, i64>) {
        for (runtime, figure) in figures {
            self.0.entry(runtime).or_default().push(figure);
        }
    }

    /// A line for each runtime.
    fn lines(&self, what: &str) -> String {
        let line = |(runtime, figures): (&&str, &Vec<i64>)| {
            let mut figures = figures.clone();
            figures.sort_unstable();
            let (least, middle, most) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
            format!("| {what} | {runtime} | {} | {least} | {middle} | {most} |\n", figures.len())
        };
        self.0.iter().map(line).collect()
    }

    fn least(&self) -> i64 {
        self.0.values().flatten().copied().min().unwrap_or(i64::MIN)
    }
}

/// Not println!: the test runner swallows that of tests that pass.
fn show(what: &str, lines: &str) {
    let head = format!("{what}, ms\n| | pods | tries | least | median | most |\n|---|---|---|---|---|---|\n");
    std::io::stderr().write_all(format!("{head}{lines}").as_bytes()).unwrap();
}

/// Invariant 5 as measured: the last sign of a pod on its old node comes before its start on another, whatever becomes of
/// the worker.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_between_the_end_of_a_pod_and_its_start_elsewhere_are_never_negative() {
    let _alone = exclusive("heavy").await;
    let (mut lines, mut least) = (String::new(), i64::MAX);
    for fault in Fault::ALL {
        let mut figures = Figures::default();
        for _ in 0..tries() {
            figures.add(once(fault).await);
        }
        lines += &figures.lines(fault.words());
        least = least.min(figures.least());
    }
    show("from the end of a pod to its start elsewhere", &lines);
    assert!(least >= 0, "a pod ran twice:\n{lines}");
}

/// What nobody can prevent, and how long it lasts: a machine that stood still as a whole finds out when it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_can_not_be_kept_by_a_machine_that_stood_still_but_it_stops_its_copies_at_once() {
    let _alone = exclusive("heavy").await;
    let mut figures = Figures::default();
    for _ in 0..tries().div_ceil(2) {
        figures.add(after_a_standstill().await);
    }
    show("from the end of a standstill to the end of the old copies", &figures.lines("machine stood still"));
    assert!(figures.0.values().flatten().all(|lasted| *lasted < 10_000), "{:?}", figures.0);
}
