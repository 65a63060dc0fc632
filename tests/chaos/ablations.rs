//! The same faults with one safeguard removed. Each must show a loss, or the faults prove nothing.

use std::time::Duration;

use kubeleet_tests::ablation::{Ablation, hash};
use kubeleet_tests::proxy::{NINE, Rewriter};

use crate::fault_runner::FaultRunner;
use crate::faults::{master, processes};
use crate::report::FaultResult;
use crate::stack::{Stack, StackOptions};

const MAX_ATTEMPTS: usize = 3;

pub async fn run(seed: u64) -> Vec<FaultResult> {
    let (wait, fence, ack) =
        tokio::join!(without_wait(seed), fence_after_death(seed), ack_that_leaves_rq(seed));
    vec![
        judge("without WAIT", wait, |result| result.lost),
        judge("with a fence after death", fence, |result| result.doubled),
        judge("with an ack that leaves rq", ack, |result| result.unaccounted),
    ]
}

fn judge(name: &str, mut result: FaultResult, losses: impl Fn(&FaultResult) -> usize) -> FaultResult {
    result.is_loss_found = Some(losses(&result) > 0);
    result.fault = format!("{name}: {}", result.fault);
    result.wrong.truncate(3);
    result
}

fn finish(mut runner: FaultRunner, name: &str) -> FaultResult {
    runner.stack.keep_logs(name);
    runner.results.remove(0)
}

fn options(rewriter: Rewriter) -> StackOptions {
    StackOptions { rewriter, without_engine: true, ..StackOptions::default() }
}

/// The master is cut off with its clients.
async fn without_wait(seed: u64) -> FaultResult {
    let rewriter = Rewriter { skips_wait: true, ..Rewriter::default() };
    let mut runner = FaultRunner::new(options(rewriter), seed).await;
    let master = runner.stack.trio.master().await;
    let _set: Result<redis::Value, _> =
        runner.stack.trio.redis[master].ask(&["SET", NINE, "123456789"]).await;
    runner
        .round("master cut off with clients", 1, async |stack: &mut Stack, _| master::cut_off(stack).await)
        .await;
    finish(runner, "without-wait")
}

/// Leases last a minute, and their registration is lost: schedulers declare nodes dead as always.
async fn fence_after_death(seed: u64) -> FaultResult {
    let worker_settings = vec![("KUBELEET_FENCE_AFTER", "60s"), ("KUBELEET_DEAD_AFTER", "61s")];
    let options = StackOptions { worker_settings, without_engine: true, ..StackOptions::default() };
    let mut runner = FaultRunner::new(options, seed).await;
    // On a busy machine the node may be back before its pods run elsewhere.
    for _ in 0..MAX_ATTEMPTS {
        runner.results.clear();
        runner
            .round("node cut off", 1, async |stack: &mut Stack, _| {
                forget_times(stack).await;
                processes::cut_off(stack).await;
            })
            .await;
        if runner.results[0].doubled > 0 {
            break;
        }
    }
    finish(runner, "fence-after-death")
}

async fn forget_times(stack: &Stack) {
    let master = &stack.trio.redis[stack.trio.master().await];
    for node in stack.nodes() {
        let _fields: u64 = master.ask(&["HDEL", &format!("node:{node}"), "times"]).await.unwrap();
    }
}

async fn ack_that_leaves_rq(seed: u64) -> FaultResult {
    let ablation = Ablation { file: "ack", from: "remove_from_rq(acked)", to: "" };
    let changed = ablation.changed();
    let hashes = changed.iter().map(|(ours, script)| (ours.clone(), hash(script))).collect();
    let mut runner = FaultRunner::new(options(Rewriter { hashes, ..Rewriter::default() }), seed).await;
    for redis in &runner.stack.trio.redis {
        for (_, script) in &changed {
            let _hash: String = redis.ask(&["SCRIPT", "LOAD", script]).await.unwrap();
        }
    }
    runner.convergence_limit = Duration::from_secs(5);
    runner
        .round("kill -9 worker", 1, async |stack: &mut Stack, _| {
            stack.workers[1].kill();
            stack.workers[1].start_again();
        })
        .await;
    finish(runner, "ack-leaves-rq")
}
