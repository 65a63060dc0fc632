//! The data in Redis is lost or replaced. The client rests meanwhile: its writes after the copy could not
//! have been kept.

use std::time::Duration;

use crate::fault_runner::FaultRunner;
use crate::stack::Stack;

/// Longer than a heartbeat, so that every worker meets it.
const EMPTY_FOR: Duration = Duration::from_secs(3);
const OLDER_BY: Duration = Duration::from_secs(3);

pub async fn run(runner: &mut FaultRunner, times: usize) {
    runner
        .rests("FLUSHALL, data restored", times, async |stack: &mut Stack, _| {
            let saved = stack.trio.save().await;
            stack.trio.replace(None).await;
            tokio::time::sleep(EMPTY_FOR).await;
            stack.trio.replace(Some(&saved)).await;
        })
        .await;
    runner
        .rests("an older state restored", times, async |stack: &mut Stack, number| {
            let saved = stack.trio.save().await;
            stack.workers[number % 3].start_again();
            if let Some(engine) = &stack.engine {
                engine.view().remove_one().await;
            }
            tokio::time::sleep(OLDER_BY).await;
            stack.trio.replace(Some(&saved)).await;
        })
        .await;
    runner
        .rests("a worker with another database number", times, async |stack: &mut Stack, number| {
            let machine = number % 3;
            let url = stack.trio.url("kubeleet", machine).replacen("/mymaster", "/mymaster/1", 1);
            stack.workers[machine].start_again_with(&[("KUBELEET_REDIS_URL", &url)]);
            tokio::time::sleep(EMPTY_FOR).await;
            stack.workers[machine].start_again();
        })
        .await;
}
