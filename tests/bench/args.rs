//! What to measure.

use clap::{Parser, ValueEnum};

use crate::rig::Persistence;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// From POST to every pod running, and Redis' own bound beside it.
    Placement,
    /// From POST to running for one pod at a time, at several loads.
    Latency,
    /// How long the pods of a dead node are away.
    DeadNode,
    /// How long nobody can post a service while Redis gets another master.
    Failover,
    /// Memory, processor, commands and bytes of a cluster at rest.
    Footprint,
    /// How cost grows with nodes and pods, drawn.
    Growth,
    /// Containers on real engines, and Swarm's beside them.
    Launch,
    /// Whether a node that lives is declared dead while all cores are busy with something else.
    Saturated,
}

/// Benchmarks of a whole cluster.
#[derive(Debug, Parser)]
#[command(name = "cluster")]
pub struct Args {
    /// What to measure; everything when left out
    part: Vec<Part>,
    /// Pods; the default sizes of the part when left out
    #[arg(long)]
    pub pods: Option<u32>,
    /// Nodes
    #[arg(long)]
    pub nodes: Option<u32>,
    /// How Redis keeps what it is told; several with commas
    #[arg(long, value_delimiter = ',')]
    pub redis: Vec<Persistence>,
    /// Runs of each measurement
    #[arg(long)]
    pub runs: Option<usize>,
    /// Schedulers
    #[arg(long, default_value_t = 1)]
    pub schedulers: u32,
    /// The largest sizes as well: takes half an hour, and 8 GiB
    #[arg(long)]
    pub full: bool,
    /// Do not send Redis the recorded commands for comparison
    #[arg(long)]
    pub no_bound: bool,
    /// Pods per second for the latency part, instead of measuring what can be had
    #[arg(long)]
    pub rate: Option<f64>,
    /// How long the saturated part watches; when left out 30, or 1 when all parts run
    #[arg(long)]
    minutes: Option<f64>,
    /// Cargo says so to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    pub fn parts(&self) -> Vec<Part> {
        if self.part.is_empty() { Part::value_variants().to_vec() } else { self.part.clone() }
    }

    pub fn minutes(&self) -> f64 {
        self.minutes.unwrap_or(if self.part.is_empty() { 1.0 } else { 30.0 })
    }

    pub fn persistences(&self, default: &[Persistence]) -> Vec<Persistence> {
        if self.redis.is_empty() { default.to_vec() } else { self.redis.clone() }
    }
}
