//! All of Redis is away: pods run on, every process stays and is quiet, and all is well soon after its return.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::Daemon;
use kubeleet_tests::eventually;
use kubeleet_tests::processes::leaders_below;
use reqwest::Method;
use serde_json::json;

use crate::engine::IMAGE;
use crate::report::Row;
use crate::stack::{Plan, Stack};

/// Noticing costs something; what counts is the waiting.
const SETTLE: Duration = Duration::from_secs(5);
/// All is well so soon after the return.
const SOON: Duration = Duration::from_secs(15);
/// Of one core.
const MOST_CPU: f64 = 0.01;

/// Kills all three Redis and all three Sentinels for `away`.
pub async fn run(away: Duration) -> Row {
    let mut stack = Stack::start(Plan::default()).await;
    let http = stack.https().remove(0);
    for number in 0..4 {
        let service = json!({
            "name": format!("keep{number}"), "image": IMAGE, "command": ["/bin/sleep", "86400"], "replicas": 3,
            "on_disconnect": "keep",
        });
        http.send(Method::PUT, &format!("/service/keep{number}"), Some(&service)).await;
    }
    let mut row = Row { fault: format!("all of Redis away for {away:.0?}"), injected: 1, ..Row::default() };
    if let (None, missing) = stack.comes_to_rest(Duration::from_secs(30)).await {
        row.wrong.extend(missing);
        return row;
    }
    let before = pods(&stack).await;
    for machine in 0..3 {
        stack.trio.redis[machine].kill();
        stack.trio.sentinels[machine].kill();
    }
    tokio::time::sleep(SETTLE).await;
    let (began, used) = (Instant::now(), cpu(&stack));
    tokio::time::sleep(away.saturating_sub(SETTLE)).await;
    let waited = began.elapsed().as_secs_f64();
    for (name, seconds) in cpu(&stack) {
        let share = (seconds - used.get(&name).copied().unwrap_or(0.0)) / waited;
        println!("  {name}: {:.2} % of a core", share * 100.0);
        if share >= MOST_CPU {
            row.wrong.push(format!("{name} took {:.1} % of a core while it waited", share * 100.0));
        }
    }
    let ended = all(&mut stack).into_iter().filter_map(|daemon| daemon.ended()).count();
    if ended > 0 {
        row.wrong.push(format!("{ended} processes ended"));
    }
    let returned = comes_back(&mut stack).await;
    let (rest, missing) = stack.comes_to_rest(SOON * 3).await;
    row.converged = returned.elapsed().as_secs_f64();
    if rest.is_none() || returned.elapsed() > SOON {
        row.wrong.push(format!("all was well only after {:.1?}: {missing:?}", returned.elapsed()));
    }
    let after = pods(&stack).await;
    if before != after {
        row.wrong.push(format!("not the same pods: {before:?} became {after:?}"));
    }
    if row.broken() {
        row.wrong.push(format!("logs are in {}", stack.keep_logs("outage").display()));
    }
    row
}

/// Everything is started again; since then it may take its time.
async fn comes_back(stack: &mut Stack) -> Instant {
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

/// Processes and containers that run, by what they are.
async fn pods(stack: &Stack) -> Vec<String> {
    let mut pods: Vec<String> =
        leaders_below(&stack.data()).into_iter().map(|(pod, process)| format!("{pod} {process}")).collect();
    if let Some(engine) = &stack.engine {
        let listed = eventually(Duration::from_secs(10), "the engine says what runs", || async {
            engine.view().ids().await.ok_or("it does not answer")
        });
        pods.extend(listed.await);
    }
    pods.sort();
    pods
}

fn all(stack: &mut Stack) -> Vec<&mut Daemon> {
    stack.apis.iter_mut().chain(&mut stack.schedulers).chain(&mut stack.workers).collect()
}

/// Seconds of processor time used so far by each daemon.
fn cpu(stack: &Stack) -> BTreeMap<String, f64> {
    let kinds = [("api", &stack.apis), ("scheduler", &stack.schedulers), ("worker", &stack.workers)];
    let each = kinds.into_iter().flat_map(|(kind, daemons)| {
        daemons.iter().enumerate().map(move |(n, daemon)| (format!("{kind}{}", n + 1), daemon))
    });
    each.filter_map(|(name, daemon)| {
        // Behind a guard is the worker.
        let behind = daemon.guarded().map_or(0.0, |pid| seconds(pid.as_raw_nonzero().get().cast_unsigned()));
        Some((name, seconds(daemon.id()?) + behind))
    })
    .collect()
}

/// User and system time of a process, all its threads together.
fn seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may hold anything, in brackets.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // USER_HZ, which programs see, is 100 on every Linux.
    (ticks(11) + ticks(12)) / 100.0
}
