//! Placement latency under an open loop: requests are sent when they are due, however long the ones before take, and
//! each is timed from the moment it was due. So a cluster that falls behind looks as slow as it is.
//!
//! What arrives are services of [`PODS`] pods each. First it is measured how many of those can be had (a closed loop),
//! then latency at shares of that. When a pod was queued and acknowledged is read from the stream of events, whose ids
//! are Redis' clock in milliseconds, the same clock as ours on one machine; one millisecond is added, so that rounding
//! never flatters. Beside it one question after the other is put to Redis, the smallest there is: no step of a pod's way can
//! be faster than that on this machine under this load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::store::Store;
use kubeleet_tests::Http;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::observe;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;

/// Pods in each service.
const PODS: u32 = 10;
/// Services before the first that counts.
const WARM_UP: u32 = 50;
/// Between two questions to Redis.
const ASK_EACH: Duration = Duration::from_millis(5);
/// Events read at a time.
const PAGE: usize = 5_000;
/// Clients of the closed loop.
const CLIENTS: u32 = 16;
const CLOSED: Duration = Duration::from_secs(5);
const OPEN: Duration = Duration::from_secs(10);
const SHARES: &[f64] = &[0.01, 0.1, 0.5, 0.9];

pub async fn run(args: &Args) {
    let nodes = args.nodes.unwrap_or(1_000);
    for persistence in args.persistences(&[Persistence::Everysec]) {
        let rate = match args.rate {
            Some(rate) => rate,
            None => closed_loop(persistence, nodes, args.schedulers).await,
        };
        println!("  closed loop, {CLIENTS} clients, services of {PODS} pods: {rate:.0} pods/s");
        let title = format!(
            "Latency: services of {PODS} pods on {nodes} nodes, AOF {}, of {rate:.0} pods/s; ms from when the POST was due",
            persistence.word()
        );
        let head = [
            "load",
            "pods/s",
            "pods",
            "in a queue p50",
            "p99",
            "p99.9",
            "running p50",
            "p99",
            "p99.9",
            "a PING p50",
            "p99",
            "p99.9",
        ];
        let mut table = Table::new(&title, &head);
        let mut results = Vec::new();
        for share in SHARES {
            let loaded = open_loop(persistence, nodes, args.schedulers, rate * share).await;
            table.row(loaded.row(*share, rate));
            results.push(loaded.json(*share, rate));
        }
        table.print();
        let results = json!({
            "nodes": nodes, "persistence": persistence.word(), "pods_per_service": PODS,
            "closed_loop_pods_per_second": rate, "loads": results,
        });
        save("latency", &results);
    }
}

/// How many pods a second run when clients post one service after the other.
async fn closed_loop(persistence: Persistence, nodes: u32, schedulers: u32) -> f64 {
    let (rig, http) = Rig::cluster(persistence, nodes, schedulers, &[]).await;
    let posted = Arc::new(AtomicU32::new(0));
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (http, posted) = (http.clone(), posted.clone());
        clients.spawn(async move {
            while begun.elapsed() < CLOSED {
                post(&http, &format!("s{}", posted.fetch_add(1, Ordering::Relaxed))).await;
            }
        });
    }
    clients.join_all().await;
    let pods = u64::from(posted.load(Ordering::Relaxed) * PODS);
    let mut connection = rig.connection().await;
    let took =
        observe::until("running", pods, begun, async || observe::running(&mut connection, &rig.nodes).await);
    pods as f64 / took.await.as_secs_f64()
}

async fn post(http: &Http, name: &str) {
    let body = json!({ "name": name, "image": "nginx:1.27", "replicas": PODS });
    let (status, answer) = http.send(Method::POST, "/service", Some(&body)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
}

/// Latencies in milliseconds.
struct Loaded {
    pods: u32,
    queued: Series,
    running: Series,
    /// One question to Redis at that load.
    question: Series,
}

async fn open_loop(persistence: Persistence, nodes: u32, schedulers: u32, rate: f64) -> Loaded {
    let (rig, http) = Rig::cluster(persistence, nodes, schedulers, &[]).await;
    warm_up(&rig, &http).await;
    let services = (rate / f64::from(PODS) * OPEN.as_secs_f64()).ceil().max(20.0) as u32;
    let gap = Duration::from_secs_f64(f64::from(PODS) / rate);
    let reader = tokio::spawn(read_events(rig.redis.store(), services));
    let (over, is_over) = oneshot::channel();
    let asking = tokio::spawn(ask_on(rig.connection().await, is_over));
    let (begun, begun_millis) = (Instant::now(), now_millis());
    let mut requests = JoinSet::new();
    for number in 0..services {
        tokio::time::sleep_until((begun + gap * number).into()).await;
        let http = http.clone();
        requests.spawn(async move { post(&http, &format!("s{number}")).await });
    }
    requests.join_all().await;
    let (queued, running) = reader.await.unwrap();
    over.send(()).unwrap();
    let due = |service: u32| begun_millis + (gap * service).as_secs_f64() * 1000.0;
    let latencies = |times: &[(u32, u64)]| {
        let mut series = Series::default();
        times.iter().for_each(|(service, at)| series.push(*at as f64 + 1.0 - due(*service)));
        series
    };
    let question = asking.await.unwrap();
    Loaded { pods: services * PODS, queued: latencies(&queued), running: latencies(&running), question }
}

/// Asks Redis the smallest question there is until it is over; gives how long each answer took, milliseconds.
async fn ask_on(mut connection: MultiplexedConnection, mut is_over: oneshot::Receiver<()>) -> Series {
    let mut took = Series::default();
    while is_over.try_recv().is_err() {
        tokio::time::sleep(ASK_EACH).await;
        let begun = Instant::now();
        let () = redis::cmd("PING").query_async(&mut connection).await.unwrap();
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    took
}

/// The first requests of all open connections and teach Redis its scripts. They are not what is measured.
async fn warm_up(rig: &Rig, http: &Http) {
    let mut requests = JoinSet::new();
    for number in 0..WARM_UP {
        let http = http.clone();
        requests.spawn(async move { post(&http, &format!("warm{number}")).await });
    }
    requests.join_all().await;
    let mut connection = rig.connection().await;
    let pods = u64::from(WARM_UP * PODS);
    observe::until("running", pods, Instant::now(), async || {
        observe::running(&mut connection, &rig.nodes).await
    })
    .await;
}

fn now_millis() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0
}

type Times = Vec<(u32, u64)>;

/// Follows the events until all pods run; gives (service, Redis' milliseconds) of each pod scheduled and started.
async fn read_events(store: Store, services: u32) -> (Times, Times) {
    let wanted = (services * PODS) as usize;
    let (mut scheduled, mut started) = (Times::new(), Times::new());
    let mut after = format!("{}-0", now_millis() as u64);
    let (mut grew_at, mut page) = (Instant::now(), 0);
    while started.len() < wanted {
        // Seldom and much at a time: reading must not be what loads Redis. But old events are trimmed: never fall behind.
        if page < PAGE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let events = store.events_after(&after, PAGE).await.unwrap();
        page = events.len();
        for event in events {
            let service = event.name.strip_prefix('s').and_then(|number| number.parse().ok());
            match (event.reason.as_str(), service) {
                ("PodScheduled", Some(service)) => scheduled.push((service, event.at)),
                ("PodStarted", Some(service)) => started.push((service, event.at)),
                _ => {}
            }
            after = event.id;
            grew_at = Instant::now();
        }
        assert!(grew_at.elapsed() < Duration::from_secs(60), "{} of {wanted} pods started", started.len());
    }
    (scheduled, started)
}

impl Loaded {
    fn row(&self, share: f64, rate: f64) -> Vec<String> {
        let quantiles = |series: &Series| {
            [0.5, 0.99, 0.999].map(|share| format!("{:.1}", series.quantile(share))).to_vec()
        };
        let mut row =
            vec![format!("{:.0} %", share * 100.0), format!("{:.0}", rate * share), self.pods.to_string()];
        row.extend(quantiles(&self.queued));
        row.extend(quantiles(&self.running));
        row.extend(quantiles(&self.question));
        row
    }

    fn json(&self, share: f64, rate: f64) -> Value {
        let quantiles = |series: &Series| json!({ "p50": series.quantile(0.5), "p99": series.quantile(0.99), "p99.9": series.quantile(0.999) });
        json!({
            "load": share, "pods_per_second": rate * share, "pods": self.pods,
            "queued_millis": quantiles(&self.queued), "running_millis": quantiles(&self.running),
            "question_millis": quantiles(&self.question),
        })
    }
}
