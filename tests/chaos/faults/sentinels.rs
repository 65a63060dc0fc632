//! Too few Sentinels: nobody may be made master, and work goes on under the one there is.

use std::time::Duration;

use crate::arena::Arena;
use crate::stack::Stack;

/// Longer than a Sentinel waits before it calls a master down.
const MASTER_SILENT: Duration = Duration::from_secs(4);

/// All of it.
pub async fn run(arena: &mut Arena, times: usize) {
    let mut wrong = Vec::new();
    arena
        .rounds("one Sentinel left, master silent", times, async |stack: &mut Stack, number| {
            let master = stack.trio.master().await;
            let left = number % 3;
            let gone: Vec<usize> = (0..3).filter(|machine| *machine != left).collect();
            for machine in &gone {
                stack.trio.sentinels[*machine].kill();
            }
            stack.trio.redis[master].freeze();
            tokio::time::sleep(MASTER_SILENT).await;
            let named: Result<redis::Value, _> = stack.trio.redis[(master + 1) % 3].ask(&["ROLE"]).await;
            let other: Result<redis::Value, _> = stack.trio.redis[(master + 2) % 3].ask(&["ROLE"]).await;
            stack.trio.redis[master].thaw();
            for role in [named, other] {
                if !format!("{role:?}").contains("slave") {
                    wrong.push(format!("one Sentinel alone has made another master: {role:?}"));
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            for machine in gone {
                stack.trio.start_sentinel(machine);
            }
            stack.trio.is_well().await;
        })
        .await;
    if let Some(row) = arena.rows.last_mut() {
        row.wrong.extend(wrong);
    }
}
