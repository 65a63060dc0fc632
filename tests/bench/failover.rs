//! A failover of Redis with the settings of `sentinel/`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use serde_json::json;
use testkit::SentinelTrio;
use testkit::redis::connect;
use testkit::sentinel::SentinelProcesses;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;

/// As in `docker-compose.yml`.
const DOWN_AFTER: [Duration; 3] =
    [Duration::from_millis(2_500), Duration::from_millis(3_000), Duration::from_millis(3_500)];
const RUNS: usize = 5;
const WORKERS: u32 = 2;
const POST_INTERVAL: Duration = Duration::from_millis(20);
const WRITE_INTERVAL: Duration = Duration::from_millis(10);
const BEFORE: Duration = Duration::from_secs(2);
/// Long enough for the old master of a planned failover to become a replica.
const AFTER: Duration = Duration::from_secs(20);
const SMOKE_AFTER: Duration = Duration::from_secs(10);
const POST_TIMEOUT: Duration = Duration::from_secs(15);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
enum Failover {
    Unplanned,
    Planned,
}

impl Failover {
    fn name(self) -> &'static str {
        match self {
            Self::Unplanned => "the master is killed",
            Self::Planned => "a planned failover",
        }
    }
}

/// The longest times in seconds without …
#[derive(Default)]
struct Gaps {
    /// … a write that Redis itself accepts.
    redis: Series,
    /// … a POST that is answered with 201 or 202.
    stored: Series,
    /// … a POST that is answered with 201.
    durable: Series,
}

pub async fn run(args: &Args) {
    let title = "A failover of Redis: longest time without, seconds";
    let head = [
        "what",
        "a write that Redis accepts",
        "a POST that is stored (201, 202)",
        "one that is durable (201)",
    ];
    let mut table = Table::new(title, &head);
    let mut results = Vec::new();
    let after = args.size(AFTER, SMOKE_AFTER);
    for failover in [Failover::Unplanned, Failover::Planned] {
        let mut gaps = Gaps::default();
        for _ in 0..args.runs(RUNS) {
            measure(failover, after, &mut gaps).await;
        }
        table.row(vec![
            failover.name().to_owned(),
            gaps.redis.show(1),
            gaps.stored.show(1),
            gaps.durable.show(1),
        ]);
        results.push(json!({
            "failover": failover.name(), "redis_seconds": gaps.redis.json(),
            "stored_seconds": gaps.stored.json(),
            "durable_seconds": gaps.durable.json(),
        }));
    }
    table.print();
    save("failover", &json!(results));
}

async fn measure(failover: Failover, after: Duration, gaps: &mut Gaps) {
    let SentinelTrio { master, replicas: _replicas, sentinels } = start().await;
    let sentinels = Arc::new(sentinels);
    let mut rig = Rig::with_redis(master, &[("KUBELEET_REDIS_URL", &sentinels.url())]).await;
    rig.workers("w", WORKERS).await;
    rig.scheduler();
    let http = rig.api().await;
    let (begin, duration) = (Instant::now(), BEFORE + after);
    let writing = tokio::spawn(write(sentinels.clone(), begin, duration));
    let posting = tokio::spawn(post(http, begin, duration));
    tokio::time::sleep(BEFORE).await;
    match failover {
        Failover::Unplanned => rig.redis.kill(),
        Failover::Planned => {
            let reply: String = sentinels.processes[0].cli(&["SENTINEL", "FAILOVER", "mymaster"]).await;
            assert_eq!(reply, "OK");
        }
    }
    tokio::time::sleep(after).await;
    let written = writing.await.unwrap();
    let answers = posting.await.unwrap();
    let stored: Vec<Duration> = answers.iter().map(|(at, _)| *at).collect();
    let durable: Vec<Duration> = answers.iter().filter(|(_, durable)| *durable).map(|(at, _)| *at).collect();
    let [write_gap, stored_gap, durable_gap] =
        [written, stored, durable].map(|moments| longest_gap(moments, duration));
    println!(
        "  {}: {write_gap:.2} s without a write, {stored_gap:.2} s without a stored POST, \
         {durable_gap:.2} s without a durable one",
        failover.name(),
    );
    gaps.redis.push(write_gap);
    gaps.stored.push(stored_gap);
    gaps.durable.push(durable_gap);
}

/// In seconds.
fn longest_gap(mut moments: Vec<Duration>, end: Duration) -> f64 {
    moments.push(end);
    moments.sort();
    moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).fold(0.0, f64::max)
}

/// True if it is durable.
async fn post(http: Http, begin: Instant, duration: Duration) -> Vec<(Duration, bool)> {
    let mut clock = tokio::time::interval(POST_INTERVAL);
    let mut in_progress: JoinSet<Option<(Duration, bool)>> = JoinSet::new();
    for number in 0.. {
        clock.tick().await;
        if begin.elapsed() > duration {
            break;
        }
        let http = http.clone();
        in_progress.spawn(async move {
            let body = json!({ "name": format!("f{number}"), "image": "nginx:1.27", "replicas": 1 });
            let sent = http.try_send(Method::POST, "/service", Some(&body));
            let status = tokio::time::timeout(POST_TIMEOUT, sent).await.ok()?.ok()?.status().as_u16();
            matches!(status, 201 | 202).then(|| (begin.elapsed(), status == 201))
        });
    }
    in_progress.join_all().await.into_iter().flatten().collect()
}

async fn write(sentinels: Arc<SentinelProcesses>, begin: Instant, duration: Duration) -> Vec<Duration> {
    let mut accepted = Vec::new();
    let mut master: Option<MultiplexedConnection> = None;
    while begin.elapsed() < duration {
        tokio::time::sleep(WRITE_INTERVAL).await;
        if master.is_none() {
            master = connect_to_master(&sentinels).await;
        }
        let Some(connection) = &mut master else { continue };
        let set: Result<(), RedisError> =
            redis::cmd("SET").arg(&["bench:probe", "1"]).query_async(connection).await;
        match set {
            Ok(()) => accepted.push(begin.elapsed()),
            Err(_) => master = None,
        }
    }
    accepted
}

async fn connect_to_master(sentinels: &SentinelProcesses) -> Option<MultiplexedConnection> {
    let port = sentinels.agreed_master().await?;
    connect(&format!("redis://127.0.0.1:{port}"), COMMAND_TIMEOUT).await.ok()
}

async fn start() -> SentinelTrio {
    let settings =
        ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3", "--repl-ping-replica-period", "1"];
    let arguments = Persistence::Everysec.arguments();
    SentinelTrio::start(2, &[arguments.as_slice(), &settings].concat(), DOWN_AFTER).await
}
