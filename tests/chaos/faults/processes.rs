//! Killing and freezing processes of each kind.

use std::time::Duration;

use kubeleet_tests::cluster::Daemon;
use kubeleet_tests::eventually;

use crate::arena::Arena;
use crate::net::Machine;
use crate::stack::{DEAD_AFTER, Stack};

/// How long a daemon is away.
const AWAY: Duration = Duration::from_millis(400);
/// How long something is frozen: clients and Sentinels notice.
const FROZEN: Duration = Duration::from_millis(2500);

/// How long its pods may take to run elsewhere.
const MOVE: Duration = Duration::from_secs(4);

type Pick = fn(&mut Stack) -> &mut Vec<Daemon>;

const KINDS: [(&str, Pick); 3] = [
    ("api", |stack| &mut stack.apis),
    ("scheduler", |stack| &mut stack.schedulers),
    ("worker", |stack| &mut stack.workers),
];

/// All of it: killed so often, frozen so often.
pub async fn run(arena: &mut Arena, kills: usize, times: usize) {
    for (kind, pick) in KINDS {
        arena
            .round(&format!("kill -9 {kind}"), kills, async |stack: &mut Stack, number| {
                let daemon = &mut pick(stack)[number % 3];
                daemon.kill();
                tokio::time::sleep(AWAY).await;
                pick(stack)[number % 3].start_again();
            })
            .await;
        arena
            .round(&format!("SIGSTOP {kind}"), times, async |stack: &mut Stack, number| {
                pick(stack)[number % 3].freeze();
                tokio::time::sleep(FROZEN).await;
                pick(stack)[number % 3].thaw();
            })
            .await;
    }
    servers(arena, kills, times).await;
}

/// Workers that are silent until their pods run elsewhere, and come back.
pub async fn slow(arena: &mut Arena, times: usize) {
    arena
        .rounds("node cut off until it is dead", times, async |stack: &mut Stack, _| cut_off(stack).await)
        .await;
    arena
        .rounds("SIGSTOP worker until it is dead", times, async |stack: &mut Stack, number| {
            let worker = 1 + number % 2;
            stack.workers[worker].freeze();
            moved(stack, worker).await;
            stack.workers[worker].thaw();
        })
        .await;
}

/// A machine that has not the master is cut off until its node is dead and its pods run elsewhere.
pub async fn cut_off(stack: &mut Stack) {
    // It has some pods by then.
    tokio::time::sleep(FROZEN).await;
    let machine = (stack.trio.master().await + 1) % 3;
    stack.net.cut(machine);
    moved(stack, machine).await;
    stack.net.heal();
    stack.trio.is_well().await;
}

/// Waits until a machine's node is declared dead, and a moment longer.
async fn moved(stack: &Stack, machine: Machine) {
    let node = format!("node:{}", stack.node(machine));
    eventually(DEAD_AFTER * 6, "the node is dead", || async {
        let master = stack.trio.agreed_master().await.ok_or("there is no master")?;
        let state: Result<String, _> = stack.trio.redis[master].ask(&["HGET", &node, "state"]).await;
        if state.is_ok_and(|state| state == "dead") { Ok(()) } else { Err("it is not") }
    })
    .await;
    tokio::time::sleep(MOVE).await;
}

async fn servers(arena: &mut Arena, kills: usize, times: usize) {
    arena
        .round("kill -9 replica", kills, async |stack: &mut Stack, number| {
            let replica = (stack.trio.master().await + 1 + number % 2) % 3;
            stack.trio.redis[replica].kill();
            tokio::time::sleep(AWAY).await;
            stack.trio.start_redis(replica).await;
            stack.trio.is_well().await;
        })
        .await;
    arena
        .round("SIGSTOP replica", times, async |stack: &mut Stack, number| {
            let replica = (stack.trio.master().await + 1 + number % 2) % 3;
            stack.trio.redis[replica].freeze();
            tokio::time::sleep(FROZEN).await;
            stack.trio.redis[replica].thaw();
            stack.trio.is_well().await;
        })
        .await;
    arena
        .round("kill -9 sentinel", kills, async |stack: &mut Stack, number| {
            stack.trio.sentinels[number % 3].kill();
            tokio::time::sleep(AWAY).await;
            stack.trio.start_sentinel(number % 3);
        })
        .await;
    arena
        .round("SIGSTOP sentinel", times, async |stack: &mut Stack, number| {
            stack.trio.sentinels[number % 3].freeze();
            tokio::time::sleep(FROZEN).await;
            stack.trio.sentinels[number % 3].thaw();
        })
        .await;
}
