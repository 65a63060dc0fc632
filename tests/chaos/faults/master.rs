//! Faults of the Redis master.

use std::time::Duration;

use testkit::eventually::{check, eventually_within};

use crate::fault_runner::FaultRunner;
use crate::stack::Stack;

/// Longer than a failover takes.
const CUT_OFF_FOR: Duration = Duration::from_secs(7);

pub async fn run(runner: &mut FaultRunner, times: usize) {
    runner.rounds("kill -9 master", times, async |stack: &mut Stack, _| kill(stack).await).await;
    runner.rounds("SENTINEL FAILOVER", times, async |stack: &mut Stack, _| fail_over(stack).await).await;
    runner
        .rounds("master cut off with clients", times, async |stack: &mut Stack, _| cut_off(stack).await)
        .await;
    runner
        .rounds("all Redis killed, AOF read", times, async |stack: &mut Stack, _| restart_all(stack).await)
        .await;
}

pub async fn run_slow(runner: &mut FaultRunner, times: usize) {
    runner.rounds("SIGSTOP master", times, async |stack: &mut Stack, _| freeze(stack).await).await;
}

pub async fn kill(stack: &mut Stack) {
    let old = stack.trio.master().await;
    stack.trio.redis[old].kill();
    stack.trio.other_master_than(old).await;
    stack.trio.start_redis(old).await;
    stack.trio.wait_until_well().await;
}

async fn freeze(stack: &mut Stack) {
    let old = stack.trio.master().await;
    stack.trio.redis[old].freeze();
    stack.trio.other_master_than(old).await;
    stack.trio.redis[old].thaw();
    stack.trio.wait_until_well().await;
}

pub async fn fail_over(stack: &mut Stack) {
    let old = stack.trio.master().await;
    // It refuses while it believes that an earlier failover is not over.
    eventually_within(Duration::from_secs(30), "the failover begins", || async {
        let reply: Result<String, _> =
            stack.trio.sentinels[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]).await;
        let has_begun = reply.as_ref().is_ok_and(|word| word == "OK");
        let has_ended = stack.trio.agreed_master().await.is_some_and(|now| now != old);
        check(has_begun || has_ended, || format!("{reply:?}"))
    })
    .await;
    stack.trio.other_master_than(old).await;
    stack.trio.wait_until_well().await;
}

pub async fn cut_off(stack: &mut Stack) {
    let old = stack.trio.master().await;
    stack.net.cut(old);
    tokio::time::sleep(CUT_OFF_FOR).await;
    stack.trio.other_master_than(old).await;
    stack.net.heal();
    stack.trio.wait_until_well().await;
}

async fn restart_all(stack: &mut Stack) {
    let master = stack.trio.master().await;
    // The former master must come back first: it had every write, and the others copy it.
    for machine in [master, (master + 1) % 3, (master + 2) % 3] {
        stack.trio.redis[machine].kill();
    }
    for machine in [master, (master + 1) % 3, (master + 2) % 3] {
        stack.trio.start_redis(machine).await;
    }
    stack.trio.wait_until_well().await;
}
