//! Processes of each kind are killed and frozen.

use std::time::Duration;

use kubeleet_tests::cluster::DaemonProcess;
use testkit::eventually::eventually_within;

use crate::fault_runner::FaultRunner;
use crate::net::Machine;
use crate::stack::{DEAD_AFTER, Stack};

const DOWNTIME: Duration = Duration::from_millis(400);
/// Long enough for clients and Sentinels to notice.
const FROZEN_FOR: Duration = Duration::from_millis(2500);

const MOVE_TIME: Duration = Duration::from_secs(4);

type Daemons = fn(&mut Stack) -> &mut Vec<DaemonProcess>;

const KINDS: [(&str, Daemons); 3] = [
    ("api", |stack| &mut stack.apis),
    ("scheduler", |stack| &mut stack.schedulers),
    ("worker", |stack| &mut stack.workers),
];

pub async fn run(runner: &mut FaultRunner, kills: usize, times: usize) {
    for (kind, daemons) in KINDS {
        runner
            .round(&format!("kill -9 {kind}"), kills, async |stack: &mut Stack, number| {
                let daemon = &mut daemons(stack)[number % 3];
                daemon.kill();
                tokio::time::sleep(DOWNTIME).await;
                daemons(stack)[number % 3].start_again();
            })
            .await;
        runner
            .round(&format!("SIGSTOP {kind}"), times, async |stack: &mut Stack, number| {
                daemons(stack)[number % 3].freeze();
                tokio::time::sleep(FROZEN_FOR).await;
                daemons(stack)[number % 3].thaw();
            })
            .await;
    }
    run_servers(runner, kills, times).await;
}

/// Until its pods run elsewhere.
pub async fn run_slow(runner: &mut FaultRunner, times: usize) {
    runner
        .rounds("node cut off until it is dead", times, async |stack: &mut Stack, _| cut_off(stack).await)
        .await;
    runner
        .rounds("SIGSTOP worker until it is dead", times, async |stack: &mut Stack, number| {
            let worker = 1 + number % 2;
            stack.workers[worker].freeze();
            wait_until_pods_moved(stack, worker).await;
            stack.workers[worker].thaw();
        })
        .await;
}

/// A machine without the master, until its pods run elsewhere.
pub async fn cut_off(stack: &mut Stack) {
    // Until the machine has some pods.
    tokio::time::sleep(FROZEN_FOR).await;
    let machine = (stack.trio.master().await + 1) % 3;
    stack.net.cut(machine);
    wait_until_pods_moved(stack, machine).await;
    stack.net.heal();
    stack.trio.wait_until_well().await;
}

async fn wait_until_pods_moved(stack: &Stack, machine: Machine) {
    let node = format!("node:{}", stack.node(machine));
    eventually_within(DEAD_AFTER * 6, "the node is dead", || async {
        let master = stack.trio.agreed_master().await.ok_or("there is no master")?;
        let state: Result<String, _> = stack.trio.redis[master].ask(&["HGET", &node, "state"]).await;
        if state.is_ok_and(|state| state == "dead") { Ok(()) } else { Err("it is not declared dead yet") }
    })
    .await;
    tokio::time::sleep(MOVE_TIME).await;
}

async fn run_servers(runner: &mut FaultRunner, kills: usize, times: usize) {
    runner
        .round("kill -9 replica", kills, async |stack: &mut Stack, number| {
            let replica = (stack.trio.master().await + 1 + number % 2) % 3;
            stack.trio.redis[replica].kill();
            tokio::time::sleep(DOWNTIME).await;
            stack.trio.start_redis(replica).await;
            stack.trio.wait_until_well().await;
        })
        .await;
    runner
        .round("SIGSTOP replica", times, async |stack: &mut Stack, number| {
            let replica = (stack.trio.master().await + 1 + number % 2) % 3;
            stack.trio.redis[replica].freeze();
            tokio::time::sleep(FROZEN_FOR).await;
            stack.trio.redis[replica].thaw();
            stack.trio.wait_until_well().await;
        })
        .await;
    runner
        .round("kill -9 sentinel", kills, async |stack: &mut Stack, number| {
            stack.trio.sentinels[number % 3].kill();
            tokio::time::sleep(DOWNTIME).await;
            stack.trio.start_sentinel(number % 3);
        })
        .await;
    runner
        .round("SIGSTOP sentinel", times, async |stack: &mut Stack, number| {
            stack.trio.sentinels[number % 3].freeze();
            tokio::time::sleep(FROZEN_FOR).await;
            stack.trio.sentinels[number % 3].thaw();
        })
        .await;
}
