//! Benchmarks of a whole cluster: real processes of the release binary with a private Redis.
//!
//! `cargo bench -p kubeleet-tests --bench cluster -- placement --pods 30000 --nodes 1000` runs one part. Each
//! writes `target/bench/<part>.json`, which `docs/internals/performance.md` explains. With `--smoke` every
//! part runs once in its smallest size, and nothing is written.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

mod args;
mod cut_host;
mod dead_node;
mod engine;
mod failover;
mod fleet;
mod following;
mod footprint;
mod growth;
mod heartbeats;
mod latency;
mod launch;
mod observe;
mod placement;
mod plot;
mod redis_bound;
mod report;
mod rig;
mod saturated;
mod serial_worker;
mod stats;
mod swarm;
mod watchers;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use futures_util::{FutureExt, StreamExt, stream};
use kubeleet_tests::exclusive::exclusive;

use args::{Args, Part};

/// Most parts wait most of the time.
const SMOKE_LANES: usize = 4;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    kubeleet_tests::cluster::binary();
    let _lock = exclusive("heavy").await;
    report::print_machine();
    if args.smoke {
        return smoke(&args).await;
    }
    for part in args.parts() {
        run(part, &args).await;
    }
    ExitCode::SUCCESS
}

async fn run(part: Part, args: &Args) {
    match part {
        Part::Placement => placement::run(args).await,
        Part::Latency => latency::run(args).await,
        Part::DeadNode => dead_node::run(args).await,
        Part::Failover => failover::run(args).await,
        Part::Following => following::run(args).await,
        Part::Footprint => footprint::run(args).await,
        Part::Growth => growth::run(args).await,
        Part::Launch => launch::run(args).await,
        Part::Watchers => watchers::run(args).await,
        Part::Saturated => saturated::run(args).await,
    }
}

async fn smoke(args: &Args) -> ExitCode {
    report::discard_results();
    // Nothing else gets a core beside the saturated part.
    let (last, first): (Vec<Part>, Vec<Part>) =
        args.parts().into_iter().partition(|part| *part == Part::Saturated);
    let mut failed = Vec::new();
    for (parts, lanes) in [(first, SMOKE_LANES), (last, 1)] {
        let mut outcomes = stream::iter(parts).map(|part| try_part(part, args)).buffer_unordered(lanes);
        while let Some((part, has_passed)) = outcomes.next().await {
            failed.extend((!has_passed).then(|| part.name()));
        }
    }
    match failed.as_slice() {
        [] => {
            println!("\nsmoke run passed; its figures mean nothing");
            ExitCode::SUCCESS
        }
        failed => {
            println!("\nsmoke run FAILED: {}", failed.join(", "));
            ExitCode::FAILURE
        }
    }
}

async fn try_part(part: Part, args: &Args) -> (Part, bool) {
    let begin = Instant::now();
    let has_passed = AssertUnwindSafe(run(part, args)).catch_unwind().await.is_ok();
    println!(
        "\n{} {} after {:.0?}",
        part.name(),
        if has_passed { "passed" } else { "FAILED" },
        begin.elapsed()
    );
    (part, has_passed)
}
