//! The container engine of a node dies or hangs, and comes back.

use std::time::Duration;

use testkit::faulty_engine::EngineFault;

use crate::fault_runner::FaultRunner;
use crate::stack::Stack;

const DOWNTIME: Duration = Duration::from_secs(2);
/// Longer than a worker waits for a ping.
const HANG: Duration = Duration::from_secs(4);

const SLOW_LIST: Duration = Duration::from_secs(2);

/// Does nothing without a private engine; its start has reported why.
pub async fn run(runner: &mut FaultRunner, times: usize) {
    if runner.stack.engine.is_none() {
        return;
    }
    runner
        .rounds("engine kill -9, restarted", times, async |stack: &mut Stack, _| {
            if let Some(engine) = &stack.engine {
                engine.kill(DOWNTIME).await;
            }
        })
        .await;
    runner
        .rounds("SIGSTOP engine", times, async |stack: &mut Stack, _| {
            if let Some(engine) = &stack.engine {
                engine.freeze(HANG).await;
            }
        })
        .await;
    runner
        .rounds("engine hangs on inspect", times, async |stack: &mut Stack, _| {
            // A request to inspect has no parameters, one to list has.
            be_sick(stack, "/json HTTP", EngineFault::Hang).await;
        })
        .await;
    runner
        .rounds("engine lists slowly", times, async |stack: &mut Stack, _| {
            be_sick(stack, "/containers/json", EngineFault::Delay(SLOW_LIST)).await;
        })
        .await;
}

async fn be_sick(stack: &Stack, part: &str, fault: EngineFault) {
    if let Some(engine) = &stack.faulty_engine {
        engine.set(part, fault);
        tokio::time::sleep(HANG).await;
        engine.heal();
    }
}
