//! Promise 14: every daemon of the version before is replaced under a client; nothing is lost, and no pod is
//! restarted.
//!
//! `make upgrade` builds the version in `tests/version-before`, and names its binary in
//! `KUBELEET_BINARY_BEFORE`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubeleet_tests::cluster::binary;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Http};
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::sleeper;

const POSTS_PER_SECOND: u32 = 50;
const SERVICES: usize = 100;
/// In seconds; `UPGRADE_MIXED` overrides it.
const MIXED: u64 = 3;
const REST_TIMEOUT: Duration = Duration::from_secs(60);

/// A service whose reply was lost is in neither.
#[derive(Default)]
struct Acknowledged {
    present: BTreeSet<String>,
    deleted: usize,
    posted: usize,
}

async fn post_and_delete(https: Vec<Http>, end: Arc<AtomicBool>) -> Acknowledged {
    let mut told = Acknowledged::default();
    let mut living = VecDeque::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / POSTS_PER_SECOND);
    for number in 0.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        ticks.tick().await;
        let http = &https[number % https.len()];
        let name = format!("load-{number}");
        let body = sleeper(&name, 1, ["stop", "keep"][number % 2]);
        if is_success(http.try_send(Method::POST, "/service", Some(&body)).await) {
            told.posted += 1;
            told.present.insert(name.clone());
            living.push_back(name);
        }
        if living.len() > SERVICES {
            let oldest = living.pop_front().expect("there are more than none");
            // Whatever the reply is, it may be deleted from now on.
            told.present.remove(&oldest);
            if is_success(http.try_send(Method::DELETE, &format!("/service/{oldest}"), None).await) {
                told.deleted += 1;
            }
        }
    }
    told
}

fn is_success(answer: reqwest::Result<reqwest::Response>) -> bool {
    answer.is_ok_and(|answer| answer.status().is_success())
}

type Processes = BTreeMap<String, BTreeSet<i64>>;

async fn watch(cluster: Arc<Cluster>, seen: Arc<Mutex<Processes>>, end: Arc<AtomicBool>) {
    while !end.load(Ordering::Relaxed) {
        for (pod, process) in cluster.processes.leaders() {
            seen.lock().entry(pod).or_default().insert(process);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn replace(daemons: &mut [Option<DaemonProcess>], order: &[usize], program: &Path, http: &Http) {
    let mixed = std::env::var("UPGRADE_MIXED").map_or(MIXED, |seconds| seconds.parse().expect("seconds"));
    for index in order {
        let daemon = daemons[*index].take().expect("every daemon is put back");
        daemons[*index] = Some(daemon.replaced_by(program));
        eventually_within(REST_TIMEOUT, "the API answers", || async {
            let answer =
                http.try_send(Method::GET, "/readyz", None).await.map_err(|error| error.to_string())?;
            check(answer.status() == StatusCode::OK, || answer.status().to_string())
        })
        .await;
        http.nodes_ready(2).await;
        tokio::time::sleep(Duration::from_secs(mixed)).await;
    }
}

fn binary_before() -> Option<PathBuf> {
    let before = std::env::var_os("KUBELEET_BINARY_BEFORE").map(PathBuf::from);
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    if before.is_none() {
        eprintln!("skipped: KUBELEET_BINARY_BEFORE names no binary; make upgrade builds it");
    }
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_before_places_no_pod_of_a_service_with_rules() {
    let Some(before) = binary_before() else { return };
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, scheduler) = (cluster.api().await, cluster.scheduler_named("s1"));
    let labels = [("w1", "disk=ssd"), ("w2", "disk=hdd")];
    let _workers =
        labels.map(|(short, label)| cluster.worker_with(short, "process", &[("KUBELEET_LABELS", label)]));
    let http = api.http();
    http.nodes_ready(2).await;
    let mut service = sleeper("web", 1, "keep");
    service["placement"] = json!({"constraints": ["disk == ssd"]});
    http.post("/service", &service).await;
    http.runs(REST_TIMEOUT, "web", 1).await;
    let pods = async || http.pods("service=web").await;

    let scheduler = scheduler.replaced_by(&before);
    service["replicas"] = 3.into();
    http.send(Method::PUT, "/service/web", Some(&service)).await;
    eventually_within(REST_TIMEOUT, "the older scheduler cannot read it", || async {
        let pods = pods().await;
        let waits = |pod: &&Value| pod["message"].as_str().is_some_and(|message| message.contains("form 4"));
        check(pods.iter().filter(waits).count() == 2, || format!("{pods:?}"))
    })
    .await;
    service["placement"] = json!({"constraints": ["disk"]});
    let (status, problem) = http.send(Method::PUT, "/service/web", Some(&service)).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (409, &json!("/problems/upgrade-incomplete")),
        "{problem}"
    );
    let mut stateful = sleeper("db", 1, "stop");
    stateful["stateful"] = true.into();
    let (status, problem) = http.send(Method::POST, "/service", Some(&stateful)).await;
    assert!(
        status.as_u16() == 409 && problem["detail"].as_str().unwrap().contains("`stateful` needs"),
        "{problem}"
    );

    let _scheduler = scheduler.replaced_by(binary());
    http.runs(REST_TIMEOUT, "web", 3).await;
    assert!(pods().await.iter().all(|pod| pod["node"] == cluster.node("w1").as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_upgrade_and_a_roll_back_lose_and_restart_nothing() {
    let Some(before) = binary_before() else { return };
    let _lock = beside_others().await;
    let cluster = Arc::new(Cluster::new(ClusterTiming::Default).await);
    let room = [("KUBELEET_MAX_PODS", "2000")];
    let daemons = [
        cluster.api().await,
        cluster.api().await,
        cluster.scheduler_named("scheduler-1"),
        cluster.scheduler_named("scheduler-2"),
        cluster.worker_with("w1", "process", &room),
        cluster.worker_with("w2", "process", &room),
    ];
    let https = vec![daemons[0].http(), daemons[1].http()];
    let http = daemons[0].http();
    let mut daemons: Vec<Option<DaemonProcess>> = daemons.into_iter().map(Some).collect();
    replace_all_at_once(&mut daemons, &before, &http).await;
    for (name, on_disconnect) in [("db", "stop"), ("web", "keep")] {
        http.post("/service", &sleeper(name, 20, on_disconnect)).await;
        http.runs(REST_TIMEOUT, name, 20).await;
    }

    let (end, all_seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let seen = Arc::default();
    let watching = tokio::spawn(watch(cluster.clone(), Arc::clone(&seen), all_seen.clone()));
    let load = tokio::spawn(post_and_delete(https, end.clone()));
    let (workers_last, workers_first) = ([0, 2, 4, 1, 3, 5], [4, 5, 2, 3, 0, 1]);
    for order in [workers_last, workers_first] {
        replace(&mut daemons, &order, binary(), &http).await;
        replace(&mut daemons, &order, &before, &http).await;
    }
    end.store(true, Ordering::Relaxed);
    let told = load.await.unwrap();
    cluster.comes_to_rest(REST_TIMEOUT, &["w1", "w2"], || async { cluster.processes.running() }).await;
    all_seen.store(true, Ordering::Relaxed);
    watching.await.unwrap();

    let seen: Processes = seen.lock().clone();
    let restarted: Vec<_> = seen.iter().filter(|(_, processes)| processes.len() > 1).collect();
    assert!(restarted.is_empty(), "pods that were restarted or ran twice: {restarted:?}");
    let page = http.get("/service?limit=1000").await;
    let found: BTreeSet<&str> =
        page["items"].as_array().unwrap().iter().filter_map(|service| service["name"].as_str()).collect();
    let lost: Vec<_> = told.present.iter().filter(|name| !found.contains(name.as_str())).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");
    assert!(told.posted > 500 && told.deleted > 300, "{} posted, {} deleted", told.posted, told.deleted);
    #[allow(clippy::print_stderr, reason = "the figures of make upgrade")]
    {
        let (pods, posted, deleted) = (seen.len(), told.posted, told.deleted);
        eprintln!(
            "{posted} posted, {deleted} deleted, {pods} pods seen, 24 daemons replaced: 0 lost, 0 restarted"
        );
    }
}

async fn replace_all_at_once(daemons: &mut [Option<DaemonProcess>], program: &Path, http: &Http) {
    for daemon in daemons.iter_mut() {
        let running = daemon.take().expect("every daemon is put back");
        *daemon = Some(running.replaced_by(program));
    }
    http.nodes_ready(2).await;
}
