//! How much of a cluster the profiles can fill: Alibaba's OpenB trace of pods with GPUs, by random choice,
//! `pack` and `fragmentation`, beside the figures that others have published.
//!
//! `make bench ARGS=quality TRACES=folder` reads `openb/*.csv` in that folder; without it the part is
//! skipped. `SEEDS=3` makes fewer runs. The trace is that of hkust-adsl/kubernetes-scheduler-simulator (ATC
//! 2023).
//!
//! The crate knows no GPUs yet: nodes and pods are modelled here, with one unit for each GPU, and the
//! functions of the profiles judge them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

mod cluster;
mod random;
mod strategy;
mod trace;

use std::path::PathBuf;
use std::time::Instant;

use cluster::{Cluster, Figures};
use random::Random;
use strategy::Strategy;
use trace::Trace;

const SEEDS: u64 = 10;
const LISTS: [&str; 2] = ["default", "gpuspec33"];
/// GPUs that the pods ask for, in percent of those that there are.
const ASKED: u64 = 130;

/// Percent: allocated when 130 % were asked for, and stranded when 95 % were. From the repository's expected
/// results, the mean of 10 seeds.
const PUBLISHED: [(&str, Strategy, f64, Option<f64>); 6] = [
    ("default", Strategy::Random, 87.47, Some(13.95)),
    ("default", Strategy::Pack, 93.08, Some(7.09)),
    ("default", Strategy::Fragmentation, 95.39, Some(4.65)),
    ("gpuspec33", Strategy::Random, 86.46, None),
    ("gpuspec33", Strategy::Pack, 93.09, None),
    ("gpuspec33", Strategy::Fragmentation, 94.55, None),
];

fn main() {
    if !is_asked_for() {
        return;
    }
    let Some(folder) = std::env::var_os("TRACES").map(PathBuf::from) else {
        println!("quality: skipped, because no traces are given: TRACES= is a folder with openb/*.csv");
        return;
    };
    let seeds = std::env::var("SEEDS").ok().map_or(SEEDS, |text| text.parse().unwrap());
    println!(
        "\nOpenB, {seeds} seeds: percent of all GPUs, mean (least to most); in parentheses as published\n"
    );
    println!(
        "| list | profile | allocated, of {ASKED} % asked for | stranded, at 95 % asked for | seconds a run |"
    );
    println!("|---|---|---|---|---|");
    for list in LISTS {
        let trace = match Trace::read(&folder.join("openb"), list) {
            Ok(trace) => trace,
            Err(why) => {
                println!("quality: the trace is skipped: {why}");
                return;
            }
        };
        for strategy in [Strategy::Random, Strategy::Pack, Strategy::Fragmentation] {
            let begin = Instant::now();
            let runs: Vec<Figures> = (0..seeds).map(|seed| run(&trace, strategy, seed)).collect();
            let seconds = begin.elapsed().as_secs_f64() / seeds as f64;
            print_row(list, strategy, &runs, seconds);
        }
    }
}

/// Cargo passes `--bench`, and `make bench` the names of parts.
fn is_asked_for() -> bool {
    let mut parts = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    parts.peek().is_none() || parts.any(|part| part == "quality")
}

fn run(trace: &Trace, strategy: Strategy, seed: u64) -> Figures {
    let mut random = Random::new(seed);
    let arrivals = trace.arrivals(ASKED, &mut random);
    Cluster::new(trace).run(strategy, &arrivals, &mut random)
}

fn print_row(list: &str, strategy: Strategy, runs: &[Figures], seconds: f64) {
    let published = PUBLISHED.iter().find(|(of, by, ..)| *of == list && *by == strategy).unwrap();
    let cell = |of: fn(&Figures) -> f64, published: Option<f64>| {
        let values: Vec<f64> = runs.iter().map(of).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let published = published.map(|of_others| format!(" ({of_others:.2})")).unwrap_or_default();
        format!("{mean:.2}{published}, {least:.2} to {most:.2}")
    };
    let allocated = cell(|run| run.allocated, Some(published.2));
    let stranded = cell(|run| run.stranded, published.3);
    println!("| {list} | {strategy} | {allocated} | {stranded} | {seconds:.1} |");
}
