//! Placement latency in an open loop: a cluster that falls behind appears as slow as it is, because each
//! request is timed from when it is due.
//!
//! Each request is a service of [`PODS`] pods. First the highest rate is measured in a closed loop, then the
//! latency at shares of it. Times are the ids of the event stream in milliseconds; one is added so that
//! rounding never flatters. Meanwhile Redis gets one PING after the other: no step of a pod's way can be
//! faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kubeleet_tests::Http;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use serde_json::{Value, json};
use store::Store;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::observe;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;

const PODS: u32 = 10;
const WARM_UP: u32 = 50;
const PING_INTERVAL: Duration = Duration::from_millis(5);
const PAGE_SIZE: usize = 5_000;
const CLIENTS: u32 = 16;
const CLOSED_TIME: Duration = Duration::from_secs(5);
const OPEN_TIME: Duration = Duration::from_secs(10);
const SMOKE_TIME: Duration = Duration::from_secs(1);
const SHARES: &[f64] = &[0.01, 0.1, 0.5, 0.9];

pub async fn run(args: &Args) {
    let nodes = args.nodes.unwrap_or(args.size(1_000, 10));
    for persistence in args.persistences(&[Persistence::Everysec]) {
        let rate = match args.rate {
            Some(rate) => rate,
            None => closed_loop(args, persistence, nodes).await,
        };
        println!("  closed loop, {CLIENTS} clients, services of {PODS} pods: {rate:.0} pods/s");
        let title = format!(
            "Latency: services of {PODS} pods on {nodes} nodes, AOF {}, shares of {rate:.0} pods/s; \
             ms from when the POST was due",
            persistence.name()
        );
        let header = [
            "load",
            "pods/s",
            "pods",
            "in a queue p50",
            "p99",
            "p99.9",
            "running p50",
            "p99",
            "p99.9",
            "PING p50",
            "p99",
            "p99.9",
        ];
        let mut table = Table::new(&title, &header);
        let mut results = Vec::new();
        for share in args.size(SHARES, &[0.1]) {
            let result = open_loop(args, persistence, nodes, rate * share).await;
            table.row(result.row(*share, rate));
            results.push(result.json(*share, rate));
        }
        table.print();
        let results = json!({
            "nodes": nodes, "persistence": persistence.name(), "pods_per_service": PODS,
            "closed_loop_pods_per_second": rate, "loads": results,
        });
        save("latency", &results);
    }
}

/// In pods per second.
async fn closed_loop(args: &Args, persistence: Persistence, nodes: u32) -> f64 {
    let (rig, http) = Rig::cluster(persistence, nodes, args.schedulers, &[]).await;
    let duration = args.size(CLOSED_TIME, SMOKE_TIME);
    let posted = Arc::new(AtomicU32::new(0));
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (http, posted) = (http.clone(), posted.clone());
        clients.spawn(async move {
            while begin.elapsed() < duration {
                post(&http, &format!("s{}", posted.fetch_add(1, Ordering::Relaxed))).await;
            }
        });
    }
    clients.join_all().await;
    let pods = u64::from(posted.load(Ordering::Relaxed) * PODS);
    let mut connection = rig.connection().await;
    let all_running =
        observe::until("running", pods, begin, async || observe::running(&mut connection, &rig.nodes).await);
    pods as f64 / all_running.await.as_secs_f64()
}

async fn post(http: &Http, name: &str) {
    let body = json!({ "name": name, "image": "nginx:1.27", "replicas": PODS });
    let (status, answer) = http.send(Method::POST, "/service", Some(&body)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
}

struct LoadResult {
    pods: u32,
    queued: Series,
    running: Series,
    ping: Series,
}

async fn open_loop(args: &Args, persistence: Persistence, nodes: u32, rate: f64) -> LoadResult {
    let (rig, http) = Rig::cluster(persistence, nodes, args.schedulers, &[]).await;
    let duration = args.size(OPEN_TIME, SMOKE_TIME);
    warm_up(&rig, &http).await;
    let services = (rate / f64::from(PODS) * duration.as_secs_f64()).ceil().max(20.0) as u32;
    let gap = Duration::from_secs_f64(f64::from(PODS) / rate);
    let reader = tokio::spawn(read_events(rig.redis.store(), services));
    let (stop, stopped) = oneshot::channel();
    let pings = tokio::spawn(ping_until(rig.connection().await, stopped));
    let (begin, begin_millis) = (Instant::now(), now_millis());
    let mut requests = JoinSet::new();
    for number in 0..services {
        tokio::time::sleep_until((begin + gap * number).into()).await;
        let http = http.clone();
        requests.spawn(async move { post(&http, &format!("s{number}")).await });
    }
    requests.join_all().await;
    let (queued, running) = reader.await.unwrap();
    stop.send(()).unwrap();
    let due = |service: u32| begin_millis + (gap * service).as_secs_f64() * 1000.0;
    let latencies = |times: &[(u32, u64)]| -> Series {
        times.iter().map(|(service, at)| *at as f64 + 1.0 - due(*service)).collect()
    };
    let ping = pings.await.unwrap();
    LoadResult { pods: services * PODS, queued: latencies(&queued), running: latencies(&running), ping }
}

/// In milliseconds.
async fn ping_until(mut connection: MultiplexedConnection, mut stopped: oneshot::Receiver<()>) -> Series {
    let mut durations = Series::default();
    while stopped.try_recv().is_err() {
        tokio::time::sleep(PING_INTERVAL).await;
        let begin = Instant::now();
        let () = redis::cmd("PING").query_async(&mut connection).await.unwrap();
        durations.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    durations
}

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

/// The service, and Redis' time in milliseconds, of each event.
type EventTimes = Vec<(u32, u64)>;

async fn read_events(store: Store, services: u32) -> (EventTimes, EventTimes) {
    let wanted = (services * PODS) as usize;
    let (mut scheduled, mut started) = (EventTimes::new(), EventTimes::new());
    let mut after = format!("{}-0", now_millis() as u64);
    let (mut grew_at, mut page) = (Instant::now(), 0);
    while started.len() < wanted {
        // Seldom, so that reading does not load Redis; at once when there are more: old ones are trimmed.
        if page < PAGE_SIZE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let events = store.events_after(&after, PAGE_SIZE).await.unwrap();
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

impl LoadResult {
    fn row(&self, share: f64, rate: f64) -> Vec<String> {
        let quantiles = |series: &Series| {
            [0.5, 0.99, 0.999].map(|share| format!("{:.1}", series.quantile(share))).to_vec()
        };
        let mut row =
            vec![format!("{:.0} %", share * 100.0), format!("{:.0}", rate * share), self.pods.to_string()];
        row.extend(quantiles(&self.queued));
        row.extend(quantiles(&self.running));
        row.extend(quantiles(&self.ping));
        row
    }

    fn json(&self, share: f64, rate: f64) -> Value {
        let quantiles = |series: &Series| {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| series.quantile(share));
            json!({ "p50": p50, "p99": p99, "p99.9": p999 })
        };
        json!({
            "load": share, "pods_per_second": rate * share, "pods": self.pods,
            "queued_millis": quantiles(&self.queued), "running_millis": quantiles(&self.running),
            "ping_millis": quantiles(&self.ping),
        })
    }
}
