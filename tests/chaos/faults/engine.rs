//! The engine of a node dies or hangs, and comes back.

use std::time::Duration;

use crate::arena::Arena;
use crate::stack::Stack;

/// How long the engine is away.
const AWAY: Duration = Duration::from_secs(2);
/// How long it hangs: longer than a worker waits for a ping.
const HUNG: Duration = Duration::from_secs(4);

/// All of it; nothing where there is no engine (that was said).
pub async fn run(arena: &mut Arena, times: usize) {
    if arena.stack.engine.is_none() {
        return;
    }
    arena
        .rounds("engine kill -9, restarted", times, async |stack: &mut Stack, _| {
            if let Some(engine) = &stack.engine {
                engine.kill(AWAY).await;
            }
        })
        .await;
    arena
        .rounds("SIGSTOP engine", times, async |stack: &mut Stack, _| {
            if let Some(engine) = &stack.engine {
                engine.freeze(HUNG).await;
            }
        })
        .await;
}
