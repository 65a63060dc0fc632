//! Injects faults into the highly available stack of real processes. `docs/internals/chaos-method.md` has the
//! method.
//!
//! Writes `target/chaos/<part>.json`, and keeps the logs of a fault that broke something. The exit code is
//! not 0 if an acknowledged write was lost, a pod ran twice with valid leases, a payload is unaccounted for,
//! or an ablation showed no loss.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "chaos prints, fails by panicking, and has no users"
)]

mod ablations;
mod args;
mod engine;
mod failovers;
mod fault_runner;
mod faults;
mod load;
mod monitor;
mod net;
mod outage;
mod replicas;
mod report;
mod rollouts;
mod stack;
mod trio;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use futures_util::future::{LocalBoxFuture, select_all};
use futures_util::{FutureExt, StreamExt, stream};
use kubeleet_tests::exclusive::exclusive;
use tokio::signal::unix::{SignalKind, signal};

use args::{Args, Part};
use fault_runner::FaultRunner;
use report::FaultResult;
use stack::StackOptions;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    kubeleet_tests::cluster::binary();
    let _lock = exclusive("heavy").await;
    let begin = Instant::now();
    let jobs = args.parts().into_iter().map(|part| job(part, &args));
    let mut jobs = stream::iter(jobs).buffer_unordered(args.lanes);
    let mut results: Vec<(Part, Vec<FaultResult>)> = Vec::new();
    let interrupt = interrupted();
    tokio::pin!(interrupt);
    let was_interrupted = loop {
        tokio::select! {
            () = &mut interrupt => break true,
            result = jobs.next() => match result {
                Some((part, faults)) => {
                    println!("{} is done after {:.0?}", part.name(), begin.elapsed());
                    report::save(&part.name(), &faults);
                    results.push((part, faults));
                }
                None => break false,
            },
        }
    };
    // Dropping a job that is in progress stops its processes and containers.
    drop(jobs);
    results.sort_by_key(|(part, _)| *part);
    let results: Vec<FaultResult> = results.into_iter().flat_map(|(_, faults)| faults).collect();
    report::print_summary(&results);
    println!("{} {:.0?}", if was_interrupted { "INTERRUPTED after" } else { "took" }, begin.elapsed());
    ExitCode::from(u8::from(was_interrupted || results.iter().any(FaultResult::is_broken)))
}

async fn interrupted() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals = signals.map(|kind| signal(kind).unwrap());
    select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
}

fn job(part: Part, args: &Args) -> LocalBoxFuture<'_, (Part, Vec<FaultResult>)> {
    let results = async move {
        match part {
            Part::Master | Part::Processes | Part::Steps | Part::Slow => run_faults(part, args).await,
            Part::Failovers => vec![failovers::run(args.failovers).await],
            Part::Rollouts => vec![rollouts::run(args.rollouts()).await],
            Part::Outage => vec![outage::run(args.away).await],
            Part::Replicas => vec![replicas::run(args.away, args.times).await],
            Part::Ablations => ablations::run(args.seed).await,
        }
    };
    // A part that panics must not take the results of the others with it.
    let results = AssertUnwindSafe(results).catch_unwind();
    results
        .map(move |results| (part, results.unwrap_or_else(|_| vec![FaultResult::aborted(&part.name())])))
        .boxed_local()
}

async fn run_faults(part: Part, args: &Args) -> Vec<FaultResult> {
    let mut runner = FaultRunner::new(StackOptions::default(), args.seed).await;
    match part {
        Part::Master => {
            faults::master::run(&mut runner, args.times).await;
            faults::data::run(&mut runner, args.times).await;
            faults::sentinels::run(&mut runner, args.times).await;
        }
        Part::Processes => {
            faults::processes::run(&mut runner, args.kills(), args.times).await;
            faults::disk::run(&mut runner, args.times).await;
            faults::engine::run(&mut runner, args.times).await;
        }
        Part::Steps => faults::steps::run(&mut runner).await,
        _ => {
            faults::processes::run_slow(&mut runner, args.times).await;
            faults::master::run_slow(&mut runner, args.times).await;
        }
    }
    runner.results
}
