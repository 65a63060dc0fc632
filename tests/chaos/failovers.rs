//! Failovers under a steady load of new services: none that was answered with 201 may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kubeleet_tests::book::Answer;
use kubeleet_tests::{Http, eventually};
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::faults::master;
use crate::load::read;
use crate::report::Row;
use crate::stack::{Plan, Stack};

/// Between two posts: 50 a second.
const PAUSE: Duration = Duration::from_millis(20);
/// Load before each failover.
const BREATH: Duration = Duration::from_secs(2);
/// Longer than an API may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long it may take until the last 202 is confirmed: a replica that died is waited for, for half a minute.
const CONFIRMED: Duration = Duration::from_secs(60);
/// How long all pods may take to run.
const REST: Duration = Duration::from_secs(120);

type Answers = Arc<Mutex<Vec<(u64, Answer)>>>;

/// As many failovers, every second one asked for, the others by killing the master.
pub async fn run(times: usize) -> Row {
    let mut stack = Stack::start(Plan { simulated: true, ..Plan::default() }).await;
    let answers = Answers::default();
    let posting = tokio::spawn(post(stack.https(), answers.clone()));
    for number in 0..times {
        tokio::time::sleep(BREATH).await;
        match number % 2 {
            0 => master::kill(&mut stack).await,
            _ => master::planned(&mut stack).await,
        }
    }
    tokio::time::sleep(BREATH).await;
    posting.abort();
    let _cancelled = posting.await;
    // What was under way is answered, or lost for good.
    tokio::time::sleep(PATIENCE).await;
    let ended = Instant::now();
    let answers = answers.lock().unwrap().clone();
    let mut row = judge(&stack, times, &answers).await;
    println!(
        "{times} failovers: {} x 201, {} of them lost, {} x 202",
        row.acknowledged, row.lost, row.stored
    );
    if let Err(wrong) = runs_just_what_is_stored(&stack).await {
        row.wrong.push(wrong);
    }
    if let Err(wrong) = all_is_confirmed(&stack).await {
        row.wrong.push(wrong);
    }
    row.wrong.extend(confirmed_and_lost(&stack).await);
    row.converged = ended.elapsed().as_secs_f64();
    if row.broken() {
        row.wrong.push(format!("logs are in {}", stack.keep_logs("failovers").display()));
    }
    row
}

/// Posts on and on, waiting for no answer before the next.
async fn post(https: Vec<Http>, answers: Answers) {
    let mut clock = tokio::time::interval(PAUSE);
    let mut under_way = JoinSet::new();
    for number in 0.. {
        clock.tick().await;
        let (http, answers) = (https[number as usize % https.len()].clone(), answers.clone());
        // Not aborted with this task: an answer that comes still counts.
        under_way.spawn(tokio::spawn(async move {
            let body =
                json!({"name": format!("f{number}"), "image": "none", "command": ["true"], "replicas": 1});
            let sent = read(http.try_send(Method::POST, "/service", Some(&body)));
            let answer = tokio::time::timeout(PATIENCE, sent).await.unwrap_or(Answer::Unknown);
            answers.lock().unwrap().push((number, answer));
        }));
        while under_way.try_join_next().is_some() {}
    }
}

async fn judge(stack: &Stack, times: usize, answers: &[(u64, Answer)]) -> Row {
    let master = stack.trio.master().await;
    let names: BTreeSet<String> = stack.trio.redis[master].ask(&["SMEMBERS", "services"]).await.unwrap();
    let count = |wanted| answers.iter().filter(|(_, answer)| *answer == wanted).count() as u64;
    let missing = |wanted| {
        let missing = answers.iter().filter(move |(_, answer)| *answer == wanted);
        missing
            .filter(|(number, _)| !names.contains(&format!("f{number}")))
            .map(|(number, _)| format!("f{number}"))
    };
    let lost: Vec<String> = missing(Answer::Durable).collect();
    Row {
        fault: "failover under 50 POST/s".to_owned(),
        injected: times,
        acknowledged: count(Answer::Durable),
        stored: count(Answer::Stored),
        unanswered: count(Answer::Unknown),
        lost: lost.len(),
        forgotten: missing(Answer::Stored).count() as u64,
        wrong: lost
            .iter()
            .take(20)
            .map(|name| format!("{name} was answered with 201 and is not there"))
            .collect(),
        ..Row::default()
    }
}

/// Every service has its one pod. Counted, not read: there are thousands.
async fn runs_just_what_is_stored(stack: &Stack) -> Result<(), String> {
    let count = async || -> Option<(u64, u64, u64)> {
        let redis = &stack.trio.redis[stack.trio.agreed_master().await?];
        let services: u64 = redis.ask(&["SCARD", "services"]).await.ok()?;
        let mut running = 0;
        let mut waiting: u64 = redis.ask(&["LLEN", "sq"]).await.ok()?;
        for node in stack.nodes() {
            running += redis.ask::<u64>(&["SCARD", &format!("cs:{node}")]).await.ok()?;
            for queue in ["pq", "rq"] {
                waiting += redis.ask::<u64>(&["LLEN", &format!("{queue}:{node}")]).await.ok()?;
            }
        }
        Some((services, running, waiting))
    };
    let rest = async {
        eventually(REST * 2, "each service has its pod", || async {
            match count().await {
                Some((services, running, 0)) if services == running => Ok(()),
                other => Err(format!("services, running, waiting: {other:?}")),
            }
        })
        .await;
    };
    match tokio::time::timeout(REST, rest).await {
        Ok(()) => Ok(()),
        Err(_) => Err(format!("not at rest within {REST:?}: {:?}", count().await)),
    }
}

/// What was answered with 202 and is there has been confirmed since.
async fn all_is_confirmed(stack: &Stack) -> Result<(), String> {
    let waiting = async || -> Option<u64> {
        let redis = &stack.trio.redis[stack.trio.agreed_master().await?];
        redis.ask(&["HLEN", "unconfirmed"]).await.ok()
    };
    let ended = Instant::now();
    while ended.elapsed() < CONFIRMED {
        if waiting().await == Some(0) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("not confirmed within {CONFIRMED:?}: {:?}", waiting().await))
}

/// Services of which an event said that all replicas have them, and that are not there.
async fn confirmed_and_lost(stack: &Stack) -> Vec<String> {
    let master = &stack.trio.redis[stack.trio.master().await];
    let names: BTreeSet<String> = master.ask(&["SMEMBERS", "services"]).await.unwrap();
    let mut confirmed = BTreeSet::new();
    let mut after = "-".to_owned();
    loop {
        let page: Vec<(String, BTreeMap<String, String>)> =
            master.ask(&["XRANGE", "events", &after, "+", "COUNT", "1000"]).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = format!("({last}");
        let told = page.into_iter().filter(|(_, event)| event["reason"] == "WriteConfirmed");
        confirmed.extend(told.filter_map(|(_, mut event)| event.remove("object")));
    }
    println!("{} services were confirmed later", confirmed.len());
    let lost = confirmed.iter().filter(|name| !names.contains(*name));
    lost.map(|name| format!("{name} was confirmed later and is not there")).collect()
}
