//! A process ends itself at every step: before and after each call of Redis and of the engine, one after the other, under
//! load and with everything going on that makes those calls.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::Daemon;
use kubeleet_tests::steps::{API, DOCKER, SCHEDULER, WORKER};

use super::stir;
use crate::arena::Arena;
use crate::stack::Stack;

/// How long a process may live before it has come to its step. Some come by only every few seconds.
const PATIENCE: Duration = Duration::from_secs(12);

/// All steps, each once.
pub async fn run(arena: &mut Arena) {
    let missed: Mutex<Vec<String>> = Mutex::default();
    let mut reached = 0;
    let mut asked = 0;
    let (reached_now, asked_now) = (&mut reached, &mut asked);
    let round = async |stack: &mut Stack, _: usize| {
        // One scheduler alone: what another one does this one does not come to.
        stack.schedulers[1..].iter_mut().for_each(Daemon::kill);
        let stirring = stir::begin(stack);
        let has_engine = stack.engine.is_some();
        let Stack { apis, schedulers, workers, .. } = stack;
        let [docker, plain, _] = &mut workers[..] else { unreachable!("three machines") };
        let docker_steps = if has_engine { DOCKER } else { &[] };
        let (api, scheduler, worker, engine) = tokio::join!(
            each(&mut apis[0], API, &missed),
            each(&mut schedulers[0], SCHEDULER, &missed),
            each(plain, WORKER, &missed),
            each(docker, docker_steps, &missed),
        );
        *reached_now += api + scheduler + worker + engine;
        *asked_now += 2 * (API.len() + SCHEDULER.len() + WORKER.len() + docker_steps.len());
        stack.schedulers[1..].iter_mut().for_each(Daemon::start_again);
        stirring.end().await;
    };
    arena.round("abort at a step", 1, round).await;
    let missed = missed.into_inner().unwrap();
    println!("aborted at {reached} of {asked} steps; not come to: {missed:?}");
    if let Some(row) = arena.rows.last_mut() {
        row.injected = reached;
        row.fault = format!("abort at {reached} of {asked} steps");
    }
}

/// Starts the process anew for each step, with that step to end at, and waits until it has. Gives how many did.
async fn each(daemon: &mut Daemon, calls: &[&str], missed: &Mutex<Vec<String>>) -> usize {
    let mut reached = 0;
    for call in calls {
        for side in ["before", "after"] {
            let step = format!("{call}.{side}");
            daemon.start_again_with(&[("KUBELEET_FAILPOINT", &step)]);
            let begun = Instant::now();
            while daemon.ended().is_none() && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            match daemon.ended() {
                Some(_) => reached += 1,
                None => missed.lock().unwrap().push(step),
            }
        }
    }
    daemon.start_again();
    reached
}
