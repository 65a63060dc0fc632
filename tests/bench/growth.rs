//! Growth of cost: time and Redis' processor time per pod, over the number of nodes and of pods, and the
//! longest script. Draws `target/bench/growth.svg`.

use serde_json::{Value, json};

use crate::args::Args;
use crate::placement::{self, PlacementRun};
use crate::plot::{Line, Plot};
use crate::report::{Table, save, save_text};
use crate::rig::Persistence;
use crate::stats::Series;

const NODES: &[u32] = &[10, 100, 1_000, 10_000];
const PODS: &[u32] = &[10, 100, 1_000, 10_000, 100_000];
const FIXED_PODS: u32 = 20_000;
const FIXED_NODES: u32 = 1_000;
const RUNS: usize = 3;

struct Point {
    pods: u32,
    nodes: u32,
    runs: Vec<PlacementRun>,
}

pub async fn run(args: &Args) {
    let runs = args.runs(RUNS);
    let (fixed_pods, fixed_nodes) = (args.size(FIXED_PODS, 50), args.size(FIXED_NODES, 5));
    let sizes = args.size(NODES, &[5]).iter().map(|nodes| (fixed_pods, *nodes));
    let over_nodes = measure_all(sizes, args.schedulers, runs).await;
    let million = args.full.then_some(1_000_000);
    let sizes = args.size(PODS, &[10, 100]).iter().copied().chain(million).map(|pods| (pods, fixed_nodes));
    let over_pods = measure_all(sizes, args.schedulers, runs).await;

    let mut table = Table::new(
        "Growth: one POST, AOF everysec, default settings",
        &[
            "pods",
            "nodes",
            "us to a queue",
            "us to running",
            "us of Redis",
            "us of the scheduler",
            "longest script ms",
        ],
    );
    over_nodes.iter().chain(&over_pods).for_each(|point| table.row(point.row()));
    table.print();
    let json_of = |points: &[Point]| points.iter().map(Point::json).collect::<Vec<_>>();
    save("growth", &json!({ "over_nodes": json_of(&over_nodes), "over_pods": json_of(&over_pods) }));
    save_text("growth.svg", &drawing(&over_nodes, &over_pods));
}

async fn measure_all(sizes: impl Iterator<Item = (u32, u32)>, schedulers: u32, runs: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for (pods, nodes) in sizes {
        let mut point = Point { pods, nodes, runs: Vec::new() };
        for _ in 0..runs {
            point
                .runs
                .push(placement::measure(pods, nodes, schedulers, Persistence::Everysec, false).await.0);
        }
        println!("  {pods} pods, {nodes} nodes: {:.1} us per pod to a queue", point.queued());
        points.push(point);
    }
    points
}

impl Point {
    fn series(&self, of: impl Fn(&PlacementRun) -> f64) -> Series {
        self.runs.iter().map(of).collect()
    }

    fn per_pod(&self, seconds: impl Fn(&PlacementRun) -> f64) -> Series {
        self.series(|run| seconds(run) * 1e6 / f64::from(self.pods))
    }

    fn queued(&self) -> f64 {
        self.per_pod(|run| run.placed.as_secs_f64()).median()
    }

    fn running(&self) -> f64 {
        self.per_pod(|run| run.running.as_secs_f64()).median()
    }

    fn cpu_per_pod(&self, kind: &str) -> Series {
        self.per_pod(|run| *run.cpu.0.get(kind).unwrap_or(&0.0))
    }

    fn longest_script(&self) -> Series {
        self.series(|run| run.counters.script_max as f64 / 1000.0)
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.pods.to_string(),
            self.nodes.to_string(),
            self.per_pod(|run| run.placed.as_secs_f64()).show(1),
            self.per_pod(|run| run.running.as_secs_f64()).show(1),
            self.cpu_per_pod("redis").show(1),
            self.cpu_per_pod("scheduler").show(1),
            self.longest_script().show(1),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "pods": self.pods, "nodes": self.nodes,
            "queued_micros_each": self.per_pod(|run| run.placed.as_secs_f64()).json(),
            "running_micros_each": self.per_pod(|run| run.running.as_secs_f64()).json(),
            "redis_micros_each": self.cpu_per_pod("redis").json(),
            "scheduler_micros_each": self.cpu_per_pod("scheduler").json(),
            "longest_script_millis": self.longest_script().json(),
        })
    }
}

fn drawing(over_nodes: &[Point], over_pods: &[Point]) -> String {
    let lines = |points: &[Point], x: fn(&Point) -> f64| {
        let line = |name, y: fn(&Point) -> f64| Line {
            name,
            points: points.iter().map(|point| (x(point), y(point))).collect(),
        };
        vec![line("POST to a queue", Point::queued), line("POST to running", Point::running)]
    };
    let nodes = format!("nodes ({FIXED_PODS} pods)");
    let pods = format!("pods in one POST ({FIXED_NODES} nodes)");
    Plot::side_by_side(&[
        Plot { title: "microseconds per pod", x: &nodes, lines: lines(over_nodes, |p| f64::from(p.nodes)) },
        Plot { title: "microseconds per pod", x: &pods, lines: lines(over_pods, |p| f64::from(p.pods)) },
    ])
}
