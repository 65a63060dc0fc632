//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::rollouts::Rollouts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// The Redis master killed, demoted, cut off with clients; all Redis restarted from disk; too few
    /// Sentinels
    Master,
    /// Processes of each kind killed and frozen; disks full; the container engine killed and frozen
    Processes,
    /// A process aborts at each failpoint, before and after each call of Redis and of the engine
    Steps,
    /// Failovers under 50 POST/s
    Failovers,
    /// Updates of a service whose ingress takes requests all the time: good, broken and undone ones
    Rollouts,
    /// All of Redis unavailable
    Outage,
    /// Both replicas away, so that Redis takes no writes: no pod may move
    Replicas,
    /// Safeguards removed: each run must show a loss
    Ablations,
    /// A node cut off or frozen until it is declared dead; a frozen master. Not part of the default round
    Slow,
}

impl Part {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Injects faults into a highly available stack of real processes, under a client that records every
/// acknowledgement.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
pub struct Args {
    /// Parts to run [default: all but slow]
    parts: Vec<Part>,
    /// How often each fault is injected
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub times: usize,
    /// How often a process of each kind is killed [default: as often as --times]
    #[arg(long, value_name = "COUNT")]
    kills: Option<usize>,
    /// Number of failovers in the failovers part
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub failovers: usize,
    /// Number of good updates in the rollouts part; a fifth as many broken ones, and a tenth undone by hand
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    rollouts: usize,
    /// How many replicas the service of the rollouts part has
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    replicas: u64,
    /// How many requests a second the ingress takes in the rollouts part, if the machine can
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// In the rollouts part, stop each pod before the next one starts: with one replica all requests wait
    #[arg(long)]
    stop_first: bool,
    /// In the rollouts part, cut the proxies off from Redis before the first update, for good
    #[arg(long)]
    cut_off: bool,
    /// How long all of Redis is unavailable in the outage part, and both replicas in the replicas part
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = humantime::parse_duration)]
    pub away: Duration,
    /// How many parts run at the same time, each on a stack of its own
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub lanes: usize,
    /// Seed for the client's random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Passed by cargo to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// The parts to run, the longest first.
    pub fn parts(&self) -> Vec<Part> {
        match self.parts.is_empty() {
            true => Part::value_variants().iter().copied().filter(|part| *part != Part::Slow).collect(),
            false => self.parts.clone(),
        }
    }

    /// Returns the options of the rollouts part.
    pub fn rollouts(&self) -> Rollouts {
        let Self { rollouts, replicas, stop_first, cut_off, rate, .. } = *self;
        Rollouts { good: rollouts, replicas, stops_first: stop_first, cut_off, rate }
    }

    /// Returns how often a process of each kind is killed.
    pub fn kills(&self) -> usize {
        self.kills.unwrap_or(self.times)
    }
}
