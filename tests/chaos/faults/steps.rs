//! A process aborts at every failpoint, before and after each call of Redis and of the engine.

use std::time::{Duration, Instant};

use kubeleet_tests::cluster::DaemonProcess;
use kubeleet_tests::steps::{API, DOCKER, SCHEDULER, WORKER};
use parking_lot::Mutex;

use super::background_load::BackgroundLoad;
use crate::fault_runner::FaultRunner;
use crate::stack::Stack;

/// Some calls happen only every few seconds.
const REACH_LIMIT: Duration = Duration::from_secs(12);

pub async fn run(runner: &mut FaultRunner) {
    let missed: Mutex<Vec<String>> = Mutex::default();
    let mut reached = 0;
    let mut total = 0;
    let (reached_now, total_now) = (&mut reached, &mut total);
    let round = async |stack: &mut Stack, _: usize| {
        // With other schedulers the first one would not make all of its calls.
        stack.schedulers[1..].iter_mut().for_each(DaemonProcess::kill);
        let background_load = BackgroundLoad::start(stack);
        let has_engine = stack.engine.is_some();
        let Stack { apis, schedulers, workers, .. } = stack;
        let [docker_worker, process_worker, _] = &mut workers[..] else { unreachable!("three machines") };
        let docker_steps = if has_engine { DOCKER } else { &[] };
        let (api, scheduler, worker, engine) = tokio::join!(
            abort_at_each(&mut apis[0], &API, &missed),
            abort_at_each(&mut schedulers[0], &SCHEDULER, &missed),
            abort_at_each(process_worker, &WORKER, &missed),
            abort_at_each(docker_worker, docker_steps, &missed),
        );
        *reached_now += api + scheduler + worker + engine;
        *total_now += 2 * (API.len() + SCHEDULER.len() + WORKER.len() + docker_steps.len());
        stack.schedulers[1..].iter_mut().for_each(DaemonProcess::start_again);
        background_load.stop().await;
    };
    runner.round("abort at a failpoint", 1, round).await;
    let missed = missed.into_inner();
    println!("aborted at {reached} of {total} failpoints; not reached: {missed:?}");
    if let Some(result) = runner.results.last_mut() {
        result.injected = reached;
        result.fault = format!("abort at {reached} of {total} failpoints");
    }
}

/// Returns the number of aborts.
async fn abort_at_each(daemon: &mut DaemonProcess, calls: &[&str], missed: &Mutex<Vec<String>>) -> usize {
    let mut reached = 0;
    for call in calls {
        for side in ["before", "after"] {
            let step = format!("{call}.{side}");
            daemon.start_again_with(&[("KUBELEET_FAILPOINT", &step)]);
            let begin = Instant::now();
            while daemon.ended().is_none() && begin.elapsed() < REACH_LIMIT {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            match daemon.ended() {
                Some(_) => reached += 1,
                None => missed.lock().push(step),
            }
        }
    }
    daemon.start_again();
    reached
}
