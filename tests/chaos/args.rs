//! What to do.

use std::time::Duration;

use clap::{Parser, ValueEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// The master killed, demoted, cut off with clients; all Redis restarted from disk; too few Sentinels.
    Master,
    /// Processes of each kind killed and frozen; disks full; the engine killed and frozen.
    Processes,
    /// A process ends itself at every step before and after each call.
    Steps,
    /// Failovers under 50 POST/s.
    Failovers,
    /// All of Redis away.
    Outage,
    /// Safeguards taken out: must show losses.
    Ablations,
    /// A node cut off, or frozen, until it is dead; a frozen master. Not in the short round.
    Slow,
}

impl Part {
    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Faults on a highly available stack of real processes, under a client that remembers every acknowledgement.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
pub struct Args {
    /// What to do; the short round when left out
    parts: Vec<Part>,
    /// How often each fault is injected
    #[arg(long, default_value_t = 3)]
    pub times: usize,
    /// How often a process of each kind is killed; as often as everything else when left out
    #[arg(long)]
    kills: Option<usize>,
    /// Failovers under load
    #[arg(long, default_value_t = 3)]
    pub failovers: usize,
    /// How long all of Redis is away
    #[arg(long, default_value = "25s", value_parser = humantime::parse_duration)]
    pub away: Duration,
    /// How many stacks are maltreated at a time
    #[arg(long, default_value_t = 3)]
    pub lanes: usize,
    /// For the dice of the client
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Cargo says so to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// The parts to do, the longest first.
    pub fn parts(&self) -> Vec<Part> {
        match self.parts.is_empty() {
            true => Part::value_variants().iter().copied().filter(|part| *part != Part::Slow).collect(),
            false => self.parts.clone(),
        }
    }

    /// How often a process of each kind is killed.
    pub fn kills(&self) -> usize {
        self.kills.unwrap_or(self.times)
    }
}
