//! A change of the Redis master: how long nobody can post a service, and beside it how long Redis itself takes no write from
//! a client that asks the Sentinels all the time. Three Redis and three Sentinels with the settings of `sentinel/`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kubeleet_tests::leash::Leashed;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::wait::that;
use kubeleet_tests::{Http, Redis, eventually};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError};
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;

/// Silence after which each Sentinel calls a server down: as in `docker-compose.yml`, milliseconds.
const DOWN_AFTER: [u32; 3] = [2_500, 3_000, 3_500];
const RUNS: usize = 5;
const WORKERS: u32 = 2;
/// Between two posts, and between two writes to Redis itself.
const POST_EACH: Duration = Duration::from_millis(20);
const WRITE_EACH: Duration = Duration::from_millis(10);
/// Of both before the change.
const BEFORE: Duration = Duration::from_secs(2);
/// And after it: long enough for the old master of a planned change to follow.
const AFTER: Duration = Duration::from_secs(20);
/// How long one post, or one question to Redis, may take.
const PATIENCE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
enum Change {
    /// kill -9.
    Killed,
    /// SENTINEL FAILOVER.
    Planned,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Killed => "the master is killed",
            Self::Planned => "a planned change",
        }
    }
}

/// Longest times without, in seconds.
#[derive(Default)]
struct Gaps {
    /// Any write that Redis itself takes.
    redis: Series,
    /// Any POST that is answered with 201 or 202.
    stored: Series,
    /// Any POST that is answered with 201.
    durable: Series,
}

pub async fn run(args: &Args) {
    let title = "A change of the Redis master: longest time without, seconds";
    let head =
        ["what", "a write that Redis takes", "a POST that is stored (201, 202)", "one that is durable (201)"];
    let mut table = Table::new(title, &head);
    let mut results = Vec::new();
    for change in [Change::Killed, Change::Planned] {
        let mut gaps = Gaps::default();
        for _ in 0..args.runs.unwrap_or(RUNS) {
            once(change, &mut gaps).await;
        }
        table.row(vec![
            change.word().to_owned(),
            gaps.redis.show(1),
            gaps.stored.show(1),
            gaps.durable.show(1),
        ]);
        results.push(json!({
            "change": change.word(), "redis_seconds": gaps.redis.json(), "stored_seconds": gaps.stored.json(),
            "durable_seconds": gaps.durable.json(),
        }));
    }
    table.print();
    save("failover", &json!(results));
}

async fn once(change: Change, gaps: &mut Gaps) {
    let (trio, master) = Trio::start().await;
    let mut rig = Rig::over(master, &[("KUBELEET_REDIS_URL", &trio.url())]).await;
    rig.workers("w", WORKERS).await;
    rig.scheduler();
    let http = rig.api().await;
    let begun = Instant::now();
    let writing = tokio::spawn(write(trio.sentinel_ports.clone(), begun));
    let posting = tokio::spawn(post(http, begun));
    tokio::time::sleep(BEFORE).await;
    match change {
        Change::Killed => rig.redis.kill(),
        Change::Planned => {
            let told: String =
                ask(trio.sentinel_ports[0], &["SENTINEL", "FAILOVER", "mymaster"]).await.unwrap();
            assert_eq!(told, "OK");
        }
    }
    tokio::time::sleep(AFTER).await;
    let written = writing.await.unwrap();
    let answers = posting.await.unwrap();
    let stored: Vec<Duration> = answers.iter().map(|(at, _)| *at).collect();
    let durable: Vec<Duration> = answers.iter().filter(|(_, durable)| *durable).map(|(at, _)| *at).collect();
    let found = [longest_gap(&written), longest_gap(&stored), longest_gap(&durable)];
    println!(
        "  {}: without a write {:.2} s, a stored POST {:.2} s, a durable one {:.2} s",
        change.word(),
        found[0],
        found[1],
        found[2]
    );
    gaps.redis.push(found[0]);
    gaps.stored.push(found[1]);
    gaps.durable.push(found[2]);
}

/// Between two moments in a row, of those until the end of the watch, seconds.
fn longest_gap(moments: &[Duration]) -> f64 {
    let mut moments = moments.to_vec();
    moments.push(BEFORE + AFTER);
    moments.sort();
    moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).fold(0.0, f64::max)
}

/// Posts on and on, waiting for no answer before the next; gives when each that was stored was answered, and whether
/// it is durable.
async fn post(http: Http, begun: Instant) -> Vec<(Duration, bool)> {
    let mut clock = tokio::time::interval(POST_EACH);
    let mut under_way: JoinSet<Option<(Duration, bool)>> = JoinSet::new();
    for number in 0.. {
        clock.tick().await;
        if begun.elapsed() > BEFORE + AFTER {
            break;
        }
        let http = http.clone();
        under_way.spawn(async move {
            let body = json!({ "name": format!("f{number}"), "image": "nginx:1.27", "replicas": 1 });
            let sent = http.try_send(Method::POST, "/service", Some(&body));
            let status = tokio::time::timeout(PATIENCE, sent).await.ok()?.ok()?.status().as_u16();
            matches!(status, 201 | 202).then(|| (begun.elapsed(), status == 201))
        });
    }
    under_way.join_all().await.into_iter().flatten().collect()
}

/// Writes on and on to whom the Sentinels name; gives when each write was taken.
async fn write(sentinels: Vec<u16>, begun: Instant) -> Vec<Duration> {
    let mut taken = Vec::new();
    let mut known: Option<MultiplexedConnection> = None;
    while begun.elapsed() < BEFORE + AFTER {
        tokio::time::sleep(WRITE_EACH).await;
        if known.is_none() {
            known = master_of(&sentinels).await;
        }
        let Some(connection) = &mut known else { continue };
        let set: Result<(), RedisError> =
            redis::cmd("SET").arg(&["bench:probe", "1"]).query_async(connection).await;
        match set {
            Ok(()) => taken.push(begun.elapsed()),
            Err(_) => known = None,
        }
    }
    taken
}

/// A connection to the master that most Sentinels name.
async fn master_of(sentinels: &[u16]) -> Option<MultiplexedConnection> {
    let mut named = Vec::new();
    for sentinel in sentinels {
        let master: Result<(String, u16), _> =
            ask(*sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]).await;
        named.extend(master.map(|(_, port)| port));
    }
    let port = *named.iter().find(|port| named.iter().filter(|other| other == port).count() >= 2)?;
    connect(port).await.ok()
}

async fn ask<T: FromRedisValue>(port: u16, words: &[&str]) -> Result<T, RedisError> {
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connect(port).await?).await
}

async fn connect(port: u16) -> Result<MultiplexedConnection, RedisError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(GLANCE)).set_response_timeout(Some(GLANCE));
    Client::open(format!("redis://127.0.0.1:{port}"))?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Two replicas and three Sentinels of a master.
struct Trio {
    _replicas: Vec<Redis>,
    _sentinels: Vec<Leashed>,
    sentinel_ports: Vec<u16>,
    _folder: TempDir,
}

impl Trio {
    /// Starts all; gives the master too.
    async fn start() -> (Self, Redis) {
        let everywhere = [
            "--min-replicas-to-write",
            "1",
            "--min-replicas-max-lag",
            "3",
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
        ];
        let master = Persistence::Everysec.redis_with(&everywhere).await;
        let port = master.port().to_string();
        let mut replicas = Vec::new();
        for _ in 0..2 {
            let following = [everywhere.as_slice(), &["--replicaof", "127.0.0.1", &port]].concat();
            replicas.push(Persistence::Everysec.redis_with(&following).await);
        }
        eventually(PATIENCE, "both replicas follow", || async {
            let info: String = master.cli(&["INFO", "replication"]).await;
            that(info.matches("state=online").count() == 2, || info.clone())
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let (mut sentinels, mut sentinel_ports) = (Vec::new(), Vec::new());
        for down_after in DOWN_AFTER {
            let port = free_port();
            let conf = folder.path().join(format!("{port}.conf"));
            sentinels.push(sentinel(&conf, port, master.port(), down_after));
            sentinel_ports.push(port);
        }
        let trio = Self { _replicas: replicas, _sentinels: sentinels, sentinel_ports, _folder: folder };
        trio.is_known().await;
        (trio, master)
    }

    /// Waits until every Sentinel knows all others and both replicas.
    async fn is_known(&self) {
        eventually(Duration::from_secs(60), "the Sentinels know everybody", || async {
            for port in &self.sentinel_ports {
                let quorum: Result<String, _> = ask(*port, &["SENTINEL", "CKQUORUM", "mymaster"]).await;
                let quorum = quorum.map_err(|error| error.to_string())?;
                that(quorum.starts_with("OK 3"), || quorum.clone())?;
                let replicas: Vec<redis::Value> = ask(*port, &["SENTINEL", "REPLICAS", "mymaster"])
                    .await
                    .map_err(|error| error.to_string())?;
                that(replicas.len() == 2, || format!("a Sentinel knows {} replicas", replicas.len()))?;
            }
            Ok::<_, String>(())
        })
        .await;
    }

    fn url(&self) -> String {
        let peers: Vec<String> = self.sentinel_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/mymaster", peers.join(","))
    }
}

fn sentinel(conf: &Path, port: u16, master: u16, down_after: u32) -> Leashed {
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds mymaster {down_after}\nsentinel failover-timeout mymaster 3000\n\
         sentinel parallel-syncs mymaster 2\n"
    );
    fs::write(conf, text).unwrap();
    let mut command = Command::new("redis-sentinel");
    command.arg(conf).stdout(Stdio::null()).stderr(Stdio::null());
    Leashed::spawn(&mut command).expect("redis-sentinel can be started; is it installed?")
}
