//! The cost of an idle cluster, and the start times of its daemons.

use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use kubeleet_tests::cluster::binary;
use kubeleet_tests::ports::free_port;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use serde_json::{Value, json};

use crate::args::Args;
use crate::observe;
use crate::report::{Table, save};
use crate::rig::{Memory, Persistence, Rig, with_descendants};
use crate::stats::Series;

const IDLE_TIME: Duration = Duration::from_secs(15);
const SMOKE_IDLE_TIME: Duration = Duration::from_secs(1);
const PODS: &[u32] = &[0, 100, 1_000];
const WORKERS: &[u32] = &[10, 1_000];
const FULL_WORKERS: u32 = 5_000;
const START_RUNS: usize = 5;

pub async fn run(args: &Args) {
    let results = json!({
        "binary_bytes": std::fs::metadata(binary()).unwrap().len(),
        "start": start_up(args.runs(START_RUNS)).await,
        "idle_node": idle_nodes(args).await,
        "idle_cluster": idle_clusters(args).await,
    });
    println!("\nbinary: {:.1} MiB", results["binary_bytes"].as_f64().unwrap_or_default() / MIB);
    save("footprint", &results);
}

const MIB: f64 = 1_048_576.0;

/// Until the API is ready, a scheduler is registered, and a worker's heartbeat is in Redis.
async fn start_up(runs: usize) -> Value {
    let mut table = Table::new("From exec until ready, ms", &["daemon", "median (min–max)"]);
    let (mut api, mut scheduler, mut worker) = (Series::default(), Series::default(), Series::default());
    for _ in 0..runs {
        let mut rig = Rig::new(Persistence::Everysec, &[]).await;
        let mut connection = rig.connection().await;
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        worker.push(millis(start_until_set(&mut rig, &mut connection, "worker", "hb:w").await));
        scheduler.push(millis(start_until_set(&mut rig, &mut connection, "scheduler", "schedulers").await));
        api.push(millis(start_until_ready(&mut rig).await));
    }
    for (what, series) in [("api", &api), ("scheduler", &scheduler), ("worker (sim)", &worker)] {
        table.row(vec![what.to_owned(), series.show(0)]);
    }
    table.print();
    json!({ "api_millis": api.json(), "scheduler_millis": scheduler.json(), "worker_millis": worker.json() })
}

async fn start_until_set(
    rig: &mut Rig,
    connection: &mut MultiplexedConnection,
    kind: &'static str,
    key: &str,
) -> Duration {
    let begin = Instant::now();
    rig.start(kind, kind, &[("KUBELEET_NODE", "w"), ("KUBELEET_RUNTIME", "sim")]);
    let exists = redis::cmd("EXISTS").arg(key).to_owned();
    while exists.query_async::<u8>(connection).await.unwrap() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "the {kind} does not start");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    begin.elapsed()
}

async fn start_until_ready(rig: &mut Rig) -> Duration {
    let listen = format!("127.0.0.1:{}", free_port());
    let http = Http::new(&format!("http://{listen}"));
    let begin = Instant::now();
    rig.start("api", "api", &[("KUBELEET_LISTEN", &listen)]);
    loop {
        let answer = http.try_send(Method::GET, "/readyz", None).await;
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            return begin.elapsed();
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "the API does not start");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn idle_nodes(args: &Args) -> Value {
    let mut table = Table::new(
        "An idle node: one of each daemon, default settings",
        &[
            "pods",
            "runtime",
            "api MiB",
            "scheduler MiB",
            "worker MiB",
            "resident MiB",
            "proportional MiB",
            "% of a core",
            "Redis B/pod",
            "Redis B/event",
        ],
    );
    let docker = kubeleet_tests::Docker::find("kt-none").await.is_some();
    let mut results = Vec::new();
    let idle_time = args.size(IDLE_TIME, SMOKE_IDLE_TIME);
    let kinds =
        args.size(PODS, &[0, 20]).iter().map(|pods| (*pods, "sim")).chain(docker.then_some((0, "docker")));
    for (pods, runtime) in kinds {
        let (rig, http) = start_node(runtime).await;
        let mut connection = rig.connection().await;
        let before = observe::dataset(&rig.redis).await;
        if pods > 0 {
            let service = json!({ "name": "bench", "image": "nginx:1.27", "replicas": pods });
            rig.run_service(&http, &service).await;
        }
        let events = bytes_of(&mut connection, "events").await;
        let per_event = events / length_of(&mut connection, "events").await;
        let per_pod = (observe::dataset(&rig.redis).await - before) / f64::from(pods.max(1));
        rig.wait_until_idle(Duration::from_secs(30)).await;
        let cpu = rig.cpu();
        tokio::time::sleep(idle_time).await;
        let cpu = rig.cpu().since(&cpu);
        let core = (cpu.total() - cpu.0["redis"]) / idle_time.as_secs_f64();
        let memory = |kind: &str| {
            let daemon = rig.daemons().iter().find(|daemon| daemon.kind == kind).unwrap();
            let parts = with_descendants(daemon.id()).into_iter().map(Memory::of);
            parts.fold(Memory::default(), |all, one| Memory {
                resident: all.resident + one.resident,
                proportional: all.proportional + one.proportional,
            })
        };
        let all = ["api", "scheduler", "worker"].map(memory);
        let [api, scheduler, worker] = all.map(|memory| memory.resident / MIB);
        let proportional = all.iter().map(|memory| memory.proportional / MIB).sum::<f64>();
        table.row(vec![
            pods.to_string(),
            runtime.to_owned(),
            format!("{api:.1}"),
            format!("{scheduler:.1}"),
            format!("{worker:.1}"),
            format!("{:.1}", api + scheduler + worker),
            format!("{proportional:.1}"),
            format!("{:.2}", core * 100.0),
            if pods == 0 { "–".to_owned() } else { format!("{per_pod:.0}") },
            format!("{per_event:.0}"),
        ]);
        results.push(json!({
            "pods": pods, "runtime": runtime,
            "resident_mib": { "api": api, "scheduler": scheduler, "worker": worker },
            "proportional_mib": proportional, "core_share": core,
            "redis_core_share": cpu.0["redis"] / idle_time.as_secs_f64(),
            "redis_bytes_per_pod": (pods > 0).then_some(per_pod), "redis_bytes_per_event": per_event,
        }));
    }
    table.print();
    json!(results)
}

async fn start_node(runtime: &'static str) -> (Rig, Http) {
    let mut rig = Rig::new(Persistence::Everysec, &[]).await;
    let name = format!("kt-{}-w", std::process::id());
    rig.start(
        "worker",
        "worker",
        &[("KUBELEET_NODE", &name), ("KUBELEET_RUNTIME", runtime), ("KUBELEET_MAX_PODS", "100000")],
    );
    rig.nodes = vec![name];
    rig.scheduler();
    let http = rig.api().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    (rig, http)
}

async fn idle_clusters(args: &Args) -> Value {
    let mut table = Table::new(
        "An idle cluster: what Redis does, with one scheduler and one API",
        &["workers", "commands/s", "scripts/s", "Redis % of a core", "Redis B/node", "longest script ms"],
    );
    let mut results = Vec::new();
    let idle_time = args.size(IDLE_TIME, SMOKE_IDLE_TIME);
    for workers in args.size(WORKERS, &[10]).iter().copied().chain(args.full.then_some(FULL_WORKERS)) {
        let mut rig = Rig::new(Persistence::Everysec, &[]).await;
        rig.workers("w", workers).await;
        rig.scheduler();
        rig.api().await;
        rig.wait_until_idle(Duration::from_secs(10)).await;
        let mut connection = rig.connection().await;
        let per_node = bytes_per_node(&mut connection, workers).await;
        observe::Counters::reset(&mut connection).await;
        let cpu = rig.cpu();
        tokio::time::sleep(idle_time).await;
        let counters = observe::Counters::read(&mut connection).await;
        let core = rig.cpu().since(&cpu).0["redis"] / idle_time.as_secs_f64();
        let (commands, scripts) = (counters.commands as f64, counters.scripts as f64);
        table.row(vec![
            workers.to_string(),
            format!("{:.0}", commands / idle_time.as_secs_f64()),
            format!("{:.0}", scripts / idle_time.as_secs_f64()),
            format!("{:.1}", core * 100.0),
            format!("{per_node:.0}"),
            format!("{:.2}", counters.script_max as f64 / 1000.0),
        ]);
        results.push(json!({
            "workers": workers, "commands_per_second": commands / idle_time.as_secs_f64(),
            "scripts_per_second": scripts / idle_time.as_secs_f64(), "redis_core_share": core,
            "redis_bytes_per_node": per_node, "script_micros_max": counters.script_max,
        }));
    }
    table.print();
    json!(results)
}

/// Excludes Redis' overhead for each key (some 70 bytes).
async fn bytes_per_node(connection: &mut MultiplexedConnection, workers: u32) -> f64 {
    let mut sum = 0.0;
    for (key, share) in [("node:w-1", 1), ("hb:w-1", 1), ("nodes", workers), ("beats", workers)] {
        sum += bytes_of(connection, key).await / f64::from(share);
    }
    sum
}

async fn bytes_of(connection: &mut MultiplexedConnection, key: &str) -> f64 {
    let mut usage = redis::cmd("MEMORY");
    usage.arg(&["USAGE", key, "SAMPLES", "0"]);
    usage.query_async::<Option<f64>>(connection).await.unwrap().unwrap_or(0.0)
}

async fn length_of(connection: &mut MultiplexedConnection, stream: &str) -> f64 {
    redis::cmd("XLEN").arg(stream).query_async(connection).await.unwrap()
}
