//! Too few Sentinels: no replica may become master, and the stack works on with its master.

use std::time::Duration;

use crate::fault_runner::FaultRunner;
use crate::stack::Stack;

/// Longer than a Sentinel waits before it considers a master down.
const MASTER_FROZEN_FOR: Duration = Duration::from_secs(4);

pub async fn run(runner: &mut FaultRunner, times: usize) {
    let mut wrong = Vec::new();
    runner
        .rounds("one Sentinel left, master silent", times, async |stack: &mut Stack, number| {
            let master = stack.trio.master().await;
            let survivor = number % 3;
            let others: Vec<usize> = (0..3).filter(|machine| *machine != survivor).collect();
            for machine in &others {
                stack.trio.sentinels[*machine].kill();
            }
            stack.trio.redis[master].freeze();
            tokio::time::sleep(MASTER_FROZEN_FOR).await;
            let first: Result<redis::Value, _> = stack.trio.redis[(master + 1) % 3].ask(&["ROLE"]).await;
            let second: Result<redis::Value, _> = stack.trio.redis[(master + 2) % 3].ask(&["ROLE"]).await;
            stack.trio.redis[master].thaw();
            for role in [first, second] {
                match role.map(|role| format!("{role:?}")) {
                    Err(error) => {
                        wrong.push(format!("a Redis that should answer did not tell its role: {error}"))
                    }
                    Ok(role) if role.contains("master") => {
                        wrong.push(format!("a single Sentinel made another Redis the master: {role}"));
                    }
                    Ok(_) => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            for machine in others {
                stack.trio.start_sentinel(machine);
            }
            stack.trio.wait_until_well().await;
        })
        .await;
    if let Some(result) = runner.results.last_mut() {
        result.wrong.extend(wrong);
    }
}
