//! A full disk below the append-only file: of the master, which then takes no writes, and of a replica, which then ends.

use std::time::Duration;

use crate::arena::Arena;
use crate::stack::Stack;

const FULL: Duration = Duration::from_secs(3);

/// All of it.
pub async fn run(arena: &mut Arena, times: usize) {
    arena
        .rounds("disk full for the master's AOF", times, async |stack: &mut Stack, _| {
            let master = stack.trio.master().await;
            let redis = &stack.trio.redis[master];
            redis.limit_files(Some(redis.log_size()));
            tokio::time::sleep(FULL).await;
            stack.trio.redis[master].limit_files(None);
            stack.trio.is_well().await;
        })
        .await;
    arena
        .rounds("disk full for a replica's AOF", times, async |stack: &mut Stack, _| {
            let replica = (stack.trio.master().await + 1) % 3;
            let redis = &stack.trio.redis[replica];
            redis.limit_files(Some(redis.log_size()));
            tokio::time::sleep(FULL).await;
            if stack.trio.redis[replica].lives() {
                stack.trio.redis[replica].limit_files(None);
            } else {
                // Redis ends rather than to be a replica that can not write down what it was sent.
                stack.trio.start_redis(replica).await;
            }
            stack.trio.is_well().await;
        })
        .await;
}
