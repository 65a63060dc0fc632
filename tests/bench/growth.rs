//! How cost grows: time and Redis per placement over the number of nodes, and over the number of pods that wait; and how
//! long the longest script held Redis up. As a table, as JSON, and as a drawing (`target/bench/growth.svg`).

use serde_json::{Value, json};

use crate::args::Args;
use crate::placement::{self, Run};
use crate::plot::{Line, Plot};
use crate::report::{Table, save, save_text};
use crate::rig::Persistence;
use crate::stats::Series;

const NODES: &[u32] = &[10, 100, 1_000, 10_000];
const PODS: &[u32] = &[10, 100, 1_000, 10_000, 100_000];
/// Pods while the nodes grow, and nodes while the pods grow.
const MANY_PODS: u32 = 20_000;
const MANY_NODES: u32 = 1_000;
const RUNS: usize = 3;

/// One size, all its runs.
struct Point {
    pods: u32,
    nodes: u32,
    runs: Vec<Run>,
}

pub async fn run(args: &Args) {
    let runs = args.runs.unwrap_or(RUNS);
    let over_nodes = points(NODES.iter().map(|nodes| (MANY_PODS, *nodes)), args.schedulers, runs).await;
    let million = args.full.then_some(1_000_000);
    let sizes = PODS.iter().copied().chain(million).map(|pods| (pods, MANY_NODES));
    let over_pods = points(sizes, args.schedulers, runs).await;

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

async fn points(sizes: impl Iterator<Item = (u32, u32)>, schedulers: u32, runs: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for (pods, nodes) in sizes {
        let mut point = Point { pods, nodes, runs: Vec::new() };
        for _ in 0..runs {
            point.runs.push(placement::once(pods, nodes, schedulers, Persistence::Everysec, None).await.0);
        }
        println!("  {pods} pods, {nodes} nodes: {:.1} us each to a queue", point.queued());
        points.push(point);
    }
    points
}

impl Point {
    fn series(&self, of: impl Fn(&Run) -> f64) -> Series {
        let mut series = Series::default();
        self.runs.iter().for_each(|run| series.push(of(run)));
        series
    }

    /// Microseconds for each pod.
    fn each(&self, seconds: impl Fn(&Run) -> f64) -> Series {
        self.series(|run| seconds(run) * 1e6 / f64::from(self.pods))
    }

    fn queued(&self) -> f64 {
        self.each(|run| run.placed.as_secs_f64()).median()
    }

    fn running(&self) -> f64 {
        self.each(|run| run.running.as_secs_f64()).median()
    }

    fn processor(&self, what: &str) -> Series {
        self.each(|run| *run.cpu.0.get(what).unwrap_or(&0.0))
    }

    fn longest_script(&self) -> Series {
        self.series(|run| run.counters.script_max as f64 / 1000.0)
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.pods.to_string(),
            self.nodes.to_string(),
            self.each(|run| run.placed.as_secs_f64()).show(1),
            self.each(|run| run.running.as_secs_f64()).show(1),
            self.processor("redis").show(1),
            self.processor("scheduler").show(1),
            self.longest_script().show(1),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "pods": self.pods, "nodes": self.nodes,
            "queued_micros_each": self.each(|run| run.placed.as_secs_f64()).json(),
            "running_micros_each": self.each(|run| run.running.as_secs_f64()).json(),
            "redis_micros_each": self.processor("redis").json(),
            "scheduler_micros_each": self.processor("scheduler").json(),
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
    let nodes = format!("nodes ({MANY_PODS} pods)");
    let pods = format!("pods in one POST ({MANY_NODES} nodes)");
    Plot::side_by_side(&[
        Plot {
            title: "microseconds for each pod",
            x: &nodes,
            lines: lines(over_nodes, |p| f64::from(p.nodes)),
        },
        Plot { title: "microseconds for each pod", x: &pods, lines: lines(over_pods, |p| f64::from(p.pods)) },
    ])
}
