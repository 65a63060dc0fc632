//! All of Redis is unavailable: pods run on, no process ends or spins, and the stack converges after its
//! return.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::DaemonProcess;
use kubeleet_tests::processes::{cpu_seconds, leaders_below};
use reqwest::Method;
use serde_json::json;
use testkit::eventually::eventually_within;

use crate::engine::IMAGE;
use crate::report::FaultResult;
use crate::stack::{Stack, StackOptions};

/// Noticing the outage costs processor time.
const SETTLE_TIME: Duration = Duration::from_secs(5);
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(15);
/// The share of one core that a waiting process may use.
const MAX_CPU_SHARE: f64 = if cfg!(debug_assertions) { 0.02 } else { 0.01 };

pub async fn run(away: Duration) -> FaultResult {
    let mut stack = Stack::start(StackOptions::default()).await;
    let http = stack.https().remove(0);
    for number in 0..4 {
        let service = json!({
            "name": format!("keep{number}"), "image": IMAGE, "command": ["/bin/sleep", "86400"],
            "replicas": 3, "on_disconnect": "keep",
        });
        http.send(Method::PUT, &format!("/service/keep{number}"), Some(&service)).await;
    }
    let fault = format!("all of Redis away for {away:.0?}");
    let mut result = FaultResult { fault, injected: 1, ..FaultResult::default() };
    if let (None, missing) = stack.wait_until_converged(Duration::from_secs(30)).await {
        result.wrong.extend(missing);
        return result;
    }
    let before = pods(&stack).await;
    for machine in 0..3 {
        stack.trio.redis[machine].kill();
        stack.trio.sentinels[machine].kill();
    }
    tokio::time::sleep(SETTLE_TIME).await;
    let (begin, cpu_before) = (Instant::now(), cpu_of_daemons(&stack));
    tokio::time::sleep(away.saturating_sub(SETTLE_TIME)).await;
    let waited = begin.elapsed().as_secs_f64();
    for (name, seconds) in cpu_of_daemons(&stack) {
        let share = (seconds - cpu_before.get(&name).copied().unwrap_or(0.0)) / waited;
        println!("  {name}: {:.2} % of a core", share * 100.0);
        if share >= MAX_CPU_SHARE {
            result.wrong.push(format!("{name} used {:.1} % of a core while it waited", share * 100.0));
        }
    }
    let ended = daemons(&mut stack).into_iter().filter_map(|daemon| daemon.ended()).count();
    if ended > 0 {
        result.wrong.push(format!("{ended} processes ended"));
    }
    let returned = start_redis(&mut stack).await;
    let (keyspace, missing) = stack.wait_until_converged(CONVERGENCE_LIMIT * 3).await;
    result.converged = returned.elapsed().as_secs_f64();
    if keyspace.is_none() || returned.elapsed() > CONVERGENCE_LIMIT {
        let after = returned.elapsed();
        result
            .wrong
            .push(format!("not converged within {CONVERGENCE_LIMIT:?}, but {after:.1?}: {missing:?}"));
    }
    let after = pods(&stack).await;
    if before != after {
        result.wrong.push(format!("the pods have changed: {before:?} became {after:?}"));
    }
    if result.is_broken() {
        result.wrong.push(format!("logs are in {}", stack.keep_logs("outage").display()));
    }
    result
}

async fn start_redis(stack: &mut Stack) -> Instant {
    for machine in 0..3 {
        stack.trio.start_sentinel(machine);
    }
    for machine in 0..3 {
        stack.trio.start_redis(machine).await;
    }
    let returned = Instant::now();
    stack.trio.master().await;
    returned
}

async fn pods(stack: &Stack) -> Vec<String> {
    let mut pods: Vec<String> =
        leaders_below(&stack.data()).into_iter().map(|(pod, process)| format!("{pod} {process}")).collect();
    if let Some(engine) = &stack.engine {
        let listed =
            eventually_within(Duration::from_secs(10), "the engine lists its containers", || async {
                engine.view().ids().await.ok_or("it does not answer")
            });
        pods.extend(listed.await);
    }
    pods.sort();
    pods
}

fn daemons(stack: &mut Stack) -> Vec<&mut DaemonProcess> {
    stack.apis.iter_mut().chain(&mut stack.schedulers).chain(&mut stack.workers).collect()
}

fn cpu_of_daemons(stack: &Stack) -> BTreeMap<String, f64> {
    let kinds = [("api", &stack.apis), ("scheduler", &stack.schedulers), ("worker", &stack.workers)];
    let each = kinds.into_iter().flat_map(|(kind, daemons)| {
        daemons.iter().enumerate().map(move |(n, daemon)| (format!("{kind}{}", n + 1), daemon))
    });
    each.filter_map(|(name, daemon)| {
        let behind = daemon
            .supervised_worker()
            .map_or(0.0, |pid| cpu_seconds(pid.as_raw_nonzero().get().cast_unsigned()));
        Some((name, cpu_seconds(daemon.id()?) + behind))
    })
    .collect()
}
