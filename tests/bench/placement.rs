//! One POST of a service with many pods; for comparison, Redis' time for the same commands from a plain
//! client.

use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use reqwest::Method;
use serde_json::{Value, json};

use crate::args::Args;
use crate::observe::{self, Counters};
use crate::redis_bound::{self, RecordedCommands};
use crate::report::{Table, save};
use crate::rig::{Cpu, Persistence, Rig};
use crate::stats::Series;

pub const SERVICE: &str = "bench";
/// Larger runs are extrapolated.
const MAX_RECORDED_PODS: u32 = 30_000;

struct Size {
    pods: u32,
    nodes: u32,
    runs: usize,
    persistences: &'static [Persistence],
}

const ALL: &[Persistence] = &[Persistence::None, Persistence::Everysec, Persistence::Always];
const HA: &[Persistence] = &[Persistence::Everysec];
const SIZES: &[Size] = &[
    Size { pods: 3_000, nodes: 100, runs: 5, persistences: ALL },
    Size { pods: 30_000, nodes: 1_000, runs: 5, persistences: ALL },
    Size { pods: 100_000, nodes: 5_000, runs: 1, persistences: HA },
];
const FULL: &[Size] = &[
    Size { pods: 100_000, nodes: 5_000, runs: 3, persistences: ALL },
    Size { pods: 1_000_000, nodes: 5_000, runs: 1, persistences: HA },
];

pub struct PlacementRun {
    pub posted: Duration,
    pub placed: Duration,
    pub running: Duration,
    pub cpu: Cpu,
    pub counters: Counters,
    pub bytes_per_pod: f64,
}

pub async fn run(args: &Args) {
    let mut table = Table::new(
        "Placement: one POST, default settings, seconds as median (min–max)",
        &[
            "pods/nodes",
            "AOF",
            "in queues s",
            "running s",
            "pods/s",
            "Redis' bound s",
            "of the bound",
            "script p99.9 ms",
            "B/pod",
            "CPU s (redis api sched work)",
        ],
    );
    let mut results = Vec::new();
    for (pods, nodes, runs, persistences) in sizes(args) {
        for persistence in persistences {
            let measured = measure_size(args, pods, nodes, runs, persistence).await;
            table.row(measured.row());
            results.push(measured.json());
        }
    }
    table.print();
    save("placement", &json!(results));
}

fn sizes(args: &Args) -> Vec<(u32, u32, usize, Vec<Persistence>)> {
    if args.pods.is_some() || args.nodes.is_some() {
        let (pods, nodes) = (args.pods.unwrap_or(30_000), args.nodes.unwrap_or(1_000));
        return vec![(pods, nodes, args.runs.unwrap_or(5), args.persistences(HA))];
    }
    if args.smoke {
        return vec![(100, 5, args.runs(1), args.persistences(HA))];
    }
    let kept = SIZES.len() - usize::from(args.full);
    let all = SIZES.iter().take(kept).chain(FULL.iter().filter(|_| args.full));
    all.map(|size| {
        (size.pods, size.nodes, args.runs.unwrap_or(size.runs), args.persistences(size.persistences))
    })
    .collect()
}

struct Bound {
    pods: u32,
    commands: usize,
    seconds: Series,
}

struct Measured {
    pods: u32,
    nodes: u32,
    schedulers: u32,
    persistence: Persistence,
    runs: Vec<PlacementRun>,
    bound: Option<Bound>,
}

async fn measure_size(args: &Args, pods: u32, nodes: u32, runs: usize, persistence: Persistence) -> Measured {
    let mut measured =
        Measured { pods, nodes, schedulers: args.schedulers, persistence, runs: Vec::new(), bound: None };
    let recording = if args.no_bound { None } else { Some(record(pods, nodes, args.schedulers).await) };
    let mut seconds = Series::default();
    for _ in 0..runs {
        let run = measure(pods, nodes, args.schedulers, persistence, false).await.0;
        show_progress(&measured, &run);
        measured.runs.push(run);
        if let Some((_, commands)) = &recording {
            seconds.push(redis_bound::replay(commands, persistence).await.as_secs_f64());
        }
    }
    measured.bound = recording.map(|(pods, recorded)| Bound { pods, commands: recorded.count(), seconds });
    measured
}

/// Returns the recorded pods.
async fn record(pods: u32, nodes: u32, schedulers: u32) -> (u32, RecordedCommands) {
    let (pods, nodes) = if pods > MAX_RECORDED_PODS { (MAX_RECORDED_PODS, 1_000) } else { (pods, nodes) };
    let (_, recorded) = measure(pods, nodes, schedulers, Persistence::None, true).await;
    (pods, recorded.unwrap_or_default())
}

pub async fn measure(
    pods: u32,
    nodes: u32,
    schedulers: u32,
    persistence: Persistence,
    is_recorded: bool,
) -> (PlacementRun, Option<RecordedCommands>) {
    let (rig, http) = Rig::cluster(persistence, nodes, schedulers, &[]).await;
    measure_in(&rig, &http, pods, is_recorded).await
}

pub async fn measure_in(
    rig: &Rig,
    http: &Http,
    pods: u32,
    is_recorded: bool,
) -> (PlacementRun, Option<RecordedCommands>) {
    let mut connection = rig.connection().await;
    let in_flight = observe::in_flight_lists(&mut connection).await;
    let memory_before = observe::dataset(&rig.redis).await;
    let recorder = match is_recorded {
        true => Some(redis_bound::record(&rig.redis.url()).await),
        false => None,
    };
    Counters::reset(&mut connection).await;
    let cpu = rig.cpu();
    let begin = Instant::now();
    let (mut placing, mut running) = (connection.clone(), rig.connection().await);
    let (posted, placed, running) = tokio::join!(
        post(http, pods, begin),
        observe::until("placed", u64::from(pods), begin, async || {
            observe::placed(&mut placing, SERVICE, &in_flight).await
        }),
        observe::until("running", u64::from(pods), begin, async || {
            observe::running(&mut running, &rig.nodes).await
        }),
    );
    let cpu = rig.cpu().since(&cpu);
    let counters = Counters::read(&mut connection).await;
    let bytes_per_pod = (observe::dataset(&rig.redis).await - memory_before) / f64::from(pods);
    let recorded = match recorder {
        Some(recorder) => Some(recorder.finish().await),
        None => None,
    };
    (PlacementRun { posted, placed, running, cpu, counters, bytes_per_pod }, recorded)
}

async fn post(http: &Http, pods: u32, begin: Instant) -> Duration {
    let body = json!({ "name": SERVICE, "image": "nginx:1.27", "replicas": pods });
    let (status, answer) = http.send(Method::POST, "/service", Some(&body)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    begin.elapsed()
}

fn show_progress(measured: &Measured, run: &PlacementRun) {
    println!(
        "  {} pods, {} nodes, AOF {}: posted {:.3} s, placed {:.3} s, running {:.3} s, \
         {} scripts, {} commands, cpu {:.2?}",
        measured.pods,
        measured.nodes,
        measured.persistence.name(),
        run.posted.as_secs_f64(),
        run.placed.as_secs_f64(),
        run.running.as_secs_f64(),
        run.counters.scripts,
        run.counters.commands,
        run.cpu.0,
    );
}

impl Measured {
    fn series(&self, of: impl Fn(&PlacementRun) -> f64) -> Series {
        self.runs.iter().map(of).collect()
    }

    fn running(&self) -> Series {
        self.series(|run| run.running.as_secs_f64())
    }

    fn bound_seconds(&self) -> Option<f64> {
        let bound = self.bound.as_ref()?;
        Some(bound.seconds.median() * f64::from(self.pods) / f64::from(bound.pods))
    }

    fn cpu(&self, kind: &str) -> f64 {
        self.series(|run| *run.cpu.0.get(kind).unwrap_or(&0.0)).median()
    }

    fn row(&self) -> Vec<String> {
        let (placed, running) = (self.series(|run| run.placed.as_secs_f64()), self.running());
        let bound = self.bound_seconds();
        let none = || "–".to_owned();
        vec![
            format!("{}/{}", self.pods, self.nodes),
            self.persistence.name().to_owned(),
            placed.show(2),
            running.show(2),
            format!("{:.0}", f64::from(self.pods) / running.median()),
            bound.map_or_else(none, |seconds| format!("{seconds:.2}")),
            bound.map_or_else(none, |seconds| format!("{:.0} %", 100.0 * seconds / running.median())),
            format!("{:.1}", self.series(|run| run.counters.script_p999 as f64 / 1000.0).median()),
            format!("{:.0}", self.series(|run| run.bytes_per_pod).median()),
            format!(
                "{:.2} {:.2} {:.2} {:.2}",
                self.cpu("redis"),
                self.cpu("api"),
                self.cpu("scheduler"),
                self.cpu("worker")
            ),
        ]
    }

    fn json(&self) -> Value {
        let cpu = |kind| self.series(|run| *run.cpu.0.get(kind).unwrap_or(&0.0)).json();
        let bound = self.bound.as_ref().map(|bound| {
            json!({ "recorded_pods": bound.pods, "recorded_commands": bound.commands,
                    "replay_seconds": bound.seconds.json(),
                    "seconds": self.bound_seconds(),
                    "share": self.bound_seconds().map(|bound| bound / self.running().median()) })
        });
        json!({
            "pods": self.pods, "nodes": self.nodes, "schedulers": self.schedulers,
            "persistence": self.persistence.name(),
            "posted_seconds": self.series(|run| run.posted.as_secs_f64()).json(),
            "in_queues_seconds": self.series(|run| run.placed.as_secs_f64()).json(),
            "running_seconds": self.running().json(),
            "pods_per_second": f64::from(self.pods) / self.running().median(),
            "redis_bound": bound,
            "commands_per_pod": self.series(|run| run.counters.commands as f64 / f64::from(self.pods)).json(),
            "scripts": self.series(|run| run.counters.scripts as f64).json(),
            "commands_of_the_last_run": self.runs.last().map(|run| &run.counters.by_name),
            "script_micros": {
                "p50": self.series(|run| run.counters.script_p50 as f64).json(),
                "p99.9": self.series(|run| run.counters.script_p999 as f64).json(),
                "max": self.series(|run| run.counters.script_max as f64).json(),
            },
            "redis_bytes_per_pod": self.series(|run| run.bytes_per_pod).json(),
            "cpu_seconds": { "redis": cpu("redis"), "api": cpu("api"), "scheduler": cpu("scheduler"),
                             "worker": cpu("worker"), "bench": cpu("bench") },
        })
    }
}
