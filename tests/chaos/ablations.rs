//! The same faults with a safeguard taken out: each must show a loss, or the chaos proves nothing.

use std::time::Duration;

use kubeleet_tests::ablation::{Ablation, hash};
use kubeleet_tests::proxy::{NINE, Rewriter};

use crate::arena::Arena;
use crate::faults::{master, processes};
use crate::report::Row;
use crate::stack::{Plan, Stack};

/// What is left to chance is tried so often.
const TRIES: usize = 3;

/// All of them at a time; what they show is no failure, that they show nothing is.
pub async fn run(seed: u64) -> Vec<Row> {
    let (wait, fence, ack) =
        tokio::join!(without_wait(seed), fence_after_death(seed), ack_that_leaves_rq(seed));
    vec![
        judged("without WAIT", wait, |row| row.lost),
        judged("with a fence after death", fence, |row| row.doubled),
        judged("with an ack that leaves rq", ack, |row| row.unaccounted),
    ]
}

fn judged(name: &str, mut row: Row, losses: impl Fn(&Row) -> usize) -> Row {
    row.noticed = Some(losses(&row) > 0);
    row.fault = format!("{name}: {}", row.fault);
    row.wrong.truncate(3);
    row
}

/// What there was to see; the logs are kept, for whoever wonders why it was not.
fn shown(mut arena: Arena, name: &str) -> Row {
    arena.stack.keep_logs(name);
    arena.rows.remove(0)
}

/// Every write is called durable at once; the master is cut off with clients.
async fn without_wait(seed: u64) -> Row {
    let rewriter = Rewriter { waits_for_nobody: true, ..Rewriter::default() };
    let mut arena = Arena::new(Plan { rewriter, without_engine: true, ..Plan::default() }, seed).await;
    let master = arena.stack.trio.master().await;
    let _set: Result<redis::Value, _> = arena.stack.trio.redis[master].ask(&["SET", NINE, "123456789"]).await;
    arena
        .round("master cut off with clients", 1, async |stack: &mut Stack, _| master::cut_off(stack).await)
        .await;
    shown(arena, "without-wait")
}

/// Workers believe in their leases for a minute; schedulers declare them dead as always.
async fn fence_after_death(seed: u64) -> Row {
    let of_workers = vec![("KUBELEET_FENCE_AFTER", "60s"), ("KUBELEET_DEAD_AFTER", "61s")];
    let mut arena = Arena::new(Plan { of_workers, without_engine: true, ..Plan::default() }, seed).await;
    // On a busy machine the pods may be late elsewhere, and the node is back before they run.
    for _ in 0..TRIES {
        arena.rows.clear();
        arena.round("node cut off", 1, async |stack: &mut Stack, _| processes::cut_off(stack).await).await;
        if arena.rows[0].doubled > 0 {
            break;
        }
    }
    shown(arena, "fence-after-death")
}

/// What runs is said to run, and stays in the queue of what is starting as well.
async fn ack_that_leaves_rq(seed: u64) -> Row {
    let ablation = Ablation { file: "ack", from: "take_out(run)", to: "" };
    let changed = ablation.changed();
    let hashes = changed.iter().map(|(ours, script)| (ours.clone(), hash(script))).collect();
    let rewriter = Rewriter { hashes, ..Rewriter::default() };
    let mut arena = Arena::new(Plan { rewriter, without_engine: true, ..Plan::default() }, seed).await;
    for redis in &arena.stack.trio.redis {
        for (_, script) in &changed {
            let _hash: String = redis.ask(&["SCRIPT", "LOAD", script]).await.unwrap();
        }
    }
    arena.rest = Duration::from_secs(5);
    arena
        .round("kill -9 worker", 1, async |stack: &mut Stack, _| {
            stack.workers[1].kill();
            stack.workers[1].start_again();
        })
        .await;
    shown(arena, "ack-leaves-rq")
}
