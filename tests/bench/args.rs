//! The command line.

use clap::{Parser, ValueEnum};

use crate::rig::Persistence;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// From one POST until every pod runs, and Redis' own bound beside it
    Placement,
    /// From POST to running at several loads
    Latency,
    /// How long the pods of a dead node are down
    DeadNode,
    /// How long no service can be posted while another Redis becomes the master
    Failover,
    /// The cost of proxies that follow services, and the delay until they know a change
    Following,
    /// Memory, processor time, commands and bytes of an idle cluster
    Footprint,
    /// Cost over the number of nodes and pods, with a drawing
    Growth,
    /// Containers on real engines, compared with Docker Swarm
    Launch,
    /// The cost of clients that watch the usage of all pods
    Watchers,
    /// Whether living nodes are declared dead while all cores are busy
    Saturated,
}

impl Part {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Benchmarks of a whole cluster.
#[derive(Debug, Parser)]
#[command(name = "cluster")]
pub struct Args {
    /// Parts to run [default: all]
    part: Vec<Part>,
    /// Number of pods [default: several sizes]
    #[arg(long, value_name = "COUNT")]
    pub pods: Option<u32>,
    /// Number of nodes [default: several sizes]
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,
    /// Redis' append-only file; several separated by commas
    #[arg(long, value_delimiter = ',')]
    pub redis: Vec<Persistence>,
    /// Runs of each measurement
    #[arg(long, value_name = "COUNT")]
    pub runs: Option<usize>,
    /// Number of schedulers
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub schedulers: u32,
    /// Also measure the largest sizes, which takes half an hour and 8 GiB
    #[arg(long, conflicts_with = "smoke")]
    pub full: bool,
    /// Do not measure Redis' own bound
    #[arg(long)]
    pub no_bound: bool,
    /// Highest rate of the latency part in pods per second [default: measured]
    #[arg(long)]
    pub rate: Option<f64>,
    /// Duration of the saturated part [default: 30, or 1 if all parts run]
    #[arg(long)]
    minutes: Option<f64>,
    /// Run each part once in its smallest size, to see that it works. The figures mean nothing and are not
    /// saved
    #[arg(long)]
    pub smoke: bool,
    /// Passed by cargo to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    pub fn parts(&self) -> Vec<Part> {
        if self.part.is_empty() { Part::value_variants().to_vec() } else { self.part.clone() }
    }

    pub fn minutes(&self) -> f64 {
        let default = match (self.smoke, self.part.is_empty()) {
            (true, _) => 0.05,
            (false, true) => 1.0,
            (false, false) => 30.0,
        };
        self.minutes.unwrap_or(default)
    }

    pub fn persistences(&self, default: &[Persistence]) -> Vec<Persistence> {
        if self.redis.is_empty() { default.to_vec() } else { self.redis.clone() }
    }

    /// The number of runs, of which `default` is the usual one.
    pub fn runs(&self, default: usize) -> usize {
        self.runs.unwrap_or(self.size(default, 1))
    }

    /// Returns `smallest` in a smoke run, `usual` otherwise.
    pub fn size<T>(&self, usual: T, smallest: T) -> T {
        if self.smoke { smallest } else { usual }
    }
}
