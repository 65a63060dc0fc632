//! What befalls the master.

use std::time::Duration;

use kubeleet_tests::eventually;
use kubeleet_tests::wait::that;

use crate::arena::Arena;
use crate::stack::Stack;

/// How long the master is cut off: another one has been made by then.
const CUT: Duration = Duration::from_secs(7);

/// All of it.
pub async fn run(arena: &mut Arena, times: usize) {
    arena.rounds("kill -9 master", times, async |stack: &mut Stack, _| kill(stack).await).await;
    arena.rounds("SENTINEL FAILOVER", times, async |stack: &mut Stack, _| planned(stack).await).await;
    arena
        .rounds("master cut off with clients", times, async |stack: &mut Stack, _| cut_off(stack).await)
        .await;
    arena
        .rounds("all Redis killed, AOF read", times, async |stack: &mut Stack, _| restart_all(stack).await)
        .await;
}

/// What takes longer and tells little more.
pub async fn slow(arena: &mut Arena, times: usize) {
    arena.rounds("SIGSTOP master", times, async |stack: &mut Stack, _| freeze(stack).await).await;
}

/// It is killed, another one takes over, and it comes back as a replica.
pub async fn kill(stack: &mut Stack) {
    let old = stack.trio.master().await;
    stack.trio.redis[old].kill();
    stack.trio.other_master_than(old).await;
    stack.trio.start_redis(old).await;
    stack.trio.is_well().await;
}

async fn freeze(stack: &mut Stack) {
    let old = stack.trio.master().await;
    stack.trio.redis[old].freeze();
    stack.trio.other_master_than(old).await;
    stack.trio.redis[old].thaw();
    stack.trio.is_well().await;
}

/// A Sentinel is told to make another one master.
pub async fn planned(stack: &mut Stack) {
    let old = stack.trio.master().await;
    // It says no while it thinks that an earlier one is not over.
    eventually(Duration::from_secs(30), "the failover begins", || async {
        let told: Result<String, _> =
            stack.trio.sentinels[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]).await;
        let begun = told.as_ref().is_ok_and(|word| word == "OK");
        that(begun || stack.trio.agreed_master().await.is_some_and(|now| now != old), || format!("{told:?}"))
    })
    .await;
    stack.trio.other_master_than(old).await;
    stack.trio.is_well().await;
}

/// The machine of the master is cut off, and the API, scheduler and worker on it as well, under load.
pub async fn cut_off(stack: &mut Stack) {
    let old = stack.trio.master().await;
    stack.net.cut(old);
    tokio::time::sleep(CUT).await;
    stack.trio.other_master_than(old).await;
    stack.net.heal();
    stack.trio.is_well().await;
}

/// All three die at once and come back with what is on disk.
async fn restart_all(stack: &mut Stack) {
    let master = stack.trio.master().await;
    // What comes back first must be the one that had everything: replicas copy it.
    for machine in [master, (master + 1) % 3, (master + 2) % 3] {
        stack.trio.redis[machine].kill();
    }
    for machine in [master, (master + 1) % 3, (master + 2) % 3] {
        stack.trio.start_redis(machine).await;
    }
    stack.trio.is_well().await;
}
