//! The benchmarks of a whole cluster: real processes of the release binary over a private Redis.
//!
//! `cargo bench -p kubeleet-tests --bench cluster -- placement --pods 30000 --nodes 1000` runs one part alone; without a
//! part all run. Each part prints a table and leaves `target/bench/<part>.json`. `docs/PERFORMANCE.md` says what the
//! figures mean. Deciding alone, without Redis, is measured by `cargo bench -p kubeleet-scheduler`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

mod args;
mod beats;
mod cut_host;
mod dead_node;
mod engine;
mod failover;
mod first_loop;
mod fleet;
mod footprint;
mod growth;
mod latency;
mod launch;
mod observe;
mod placement;
mod plot;
mod raw;
mod report;
mod rig;
mod saturated;
mod stats;
mod swarm;

use clap::Parser;
use kubeleet_tests::exclusive::exclusive;

use args::{Args, Part};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args = Args::parse();
    let parts = args.parts();
    // Heavy tests on this machine wait for us, and we for them.
    let _alone = exclusive("heavy").await;
    report::announce();
    for part in parts {
        match part {
            Part::Placement => placement::run(&args).await,
            Part::Latency => latency::run(&args).await,
            Part::DeadNode => dead_node::run(&args).await,
            Part::Failover => failover::run(&args).await,
            Part::Footprint => footprint::run(&args).await,
            Part::Growth => growth::run(&args).await,
            Part::Launch => launch::run(&args).await,
            Part::Saturated => saturated::run(&args).await,
        }
    }
}
