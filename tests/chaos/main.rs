//! Chaos: the highly available stack as real processes, under a client that remembers every acknowledgement, while
//! everything breaks that is on the list. `make chaos` is the short round, `make soak` the long one; `docs/CHAOS.md` says
//! what is done and what it found.
//!
//! Prints a table of each part as it ends and of all in the end, and leaves `target/chaos/<part>.json`; logs of what was
//! broken are kept beside it. The exit code is not 0 when something acknowledged was lost, a pod ran twice under good leases, a payload is unaccounted for, or a safeguard
//! could be taken out and nobody noticed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "chaos prints, fails by panicking, and has no users"
)]

mod ablations;
mod arena;
mod args;
mod engine;
mod failovers;
mod faults;
mod load;
mod net;
mod outage;
mod report;
mod stack;
mod trio;
mod watch;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use futures_util::future::{LocalBoxFuture, select_all};
use futures_util::{FutureExt, StreamExt, stream};
use kubeleet_tests::exclusive::exclusive;
use tokio::signal::unix::{SignalKind, signal};

use arena::Arena;
use args::{Args, Part};
use report::Row;
use stack::Plan;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    // Built once, before anything is timed.
    kubeleet_tests::cluster::binary();
    // Heavy tests on this machine wait for us, and we for them.
    let _alone = exclusive("heavy").await;
    let begun = Instant::now();
    let jobs = args.parts().into_iter().map(|part| job(part, &args));
    let mut jobs = stream::iter(jobs).buffer_unordered(args.lanes);
    let mut results: Vec<(Part, Vec<Row>)> = Vec::new();
    let stop = stop();
    tokio::pin!(stop);
    // Dropped, a job that is under way leaves nothing behind.
    let stopped = loop {
        tokio::select! {
            () = &mut stop => break true,
            result = jobs.next() => match result {
                Some((part, rows)) => {
                    println!("{} is done, {:.0?} after the beginning", part.name(), begun.elapsed());
                    report::leave(&part.name(), &rows);
                    results.push((part, rows));
                }
                None => break false,
            },
        }
    };
    drop(jobs);
    results.sort_by_key(|(part, _)| *part);
    let rows: Vec<Row> = results.into_iter().flat_map(|(_, rows)| rows).collect();
    report::sum_up(&rows);
    println!("{} {:.0?}", if stopped { "STOPPED after" } else { "took" }, begun.elapsed());
    ExitCode::from(u8::from(stopped || rows.iter().any(Row::broken)))
}

/// Waits until somebody wants us to stop.
async fn stop() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals = signals.map(|kind| signal(kind).unwrap());
    select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
}

fn job(part: Part, args: &Args) -> LocalBoxFuture<'_, (Part, Vec<Row>)> {
    let rows = async move {
        match part {
            Part::Master | Part::Processes | Part::Steps | Part::Slow => in_arena(part, args).await,
            Part::Failovers => vec![failovers::run(args.failovers).await],
            Part::Outage => vec![outage::run(args.away).await],
            Part::Ablations => ablations::run(args.seed).await,
        }
    };
    // One that breaks off takes nothing with it of what the others find.
    let rows = AssertUnwindSafe(rows).catch_unwind();
    rows.map(move |rows| (part, rows.unwrap_or_else(|_| vec![Row::broken_off(&part.name())]))).boxed_local()
}

async fn in_arena(part: Part, args: &Args) -> Vec<Row> {
    let mut arena = Arena::new(Plan::default(), args.seed).await;
    match part {
        Part::Master => {
            faults::master::run(&mut arena, args.times).await;
            faults::sentinels::run(&mut arena, args.times).await;
        }
        Part::Processes => {
            faults::processes::run(&mut arena, args.kills(), args.times).await;
            faults::disk::run(&mut arena, args.times).await;
            faults::engine::run(&mut arena, args.times).await;
        }
        Part::Steps => faults::steps::run(&mut arena).await,
        _ => {
            faults::processes::slow(&mut arena, args.times).await;
            faults::master::slow(&mut arena, args.times).await;
        }
    }
    arena.rows
}
