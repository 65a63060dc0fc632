//! A full disk under the append-only file: the master then refuses writes, and a replica ends.

use std::time::Duration;

use crate::fault_runner::FaultRunner;
use crate::stack::Stack;

const FULL_FOR: Duration = Duration::from_secs(3);

pub async fn run(runner: &mut FaultRunner, times: usize) {
    runner
        .rounds("disk full for the master's AOF", times, async |stack: &mut Stack, _| {
            let master = stack.trio.master().await;
            let redis = &stack.trio.redis[master];
            redis.limit_files(Some(redis.log_size()));
            tokio::time::sleep(FULL_FOR).await;
            stack.trio.redis[master].limit_files(None);
            stack.trio.wait_until_well().await;
        })
        .await;
    runner
        .rounds("disk full for a replica's AOF", times, async |stack: &mut Stack, _| {
            let replica = (stack.trio.master().await + 1) % 3;
            let redis = &stack.trio.redis[replica];
            redis.limit_files(Some(redis.log_size()));
            tokio::time::sleep(FULL_FOR).await;
            if stack.trio.redis[replica].is_running() {
                stack.trio.redis[replica].limit_files(None);
            } else {
                // A replica that cannot write its replicated data exits.
                stack.trio.start_redis(replica).await;
            }
            stack.trio.wait_until_well().await;
        })
        .await;
}
