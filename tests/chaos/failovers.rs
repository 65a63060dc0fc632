//! No service that was answered with 201 may be lost in failovers under load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use kubeleet_tests::journal::Answer;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::json;
use testkit::eventually::eventually_within;
use tokio::task::JoinSet;

use crate::faults::master;
use crate::load::read_answer;
use crate::report::FaultResult;
use crate::stack::{Stack, StackOptions};

const REQUEST_INTERVAL: Duration = Duration::from_millis(20);
const LOAD_TIME: Duration = Duration::from_secs(2);
/// Longer than an API takes to answer or fail.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// A dead replica is waited for half a minute.
const CONFIRMATION_LIMIT: Duration = Duration::from_secs(60);
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(120);

type Answers = Arc<Mutex<Vec<(u64, Answer)>>>;

pub async fn run(times: usize) -> FaultResult {
    let mut stack = Stack::start(StackOptions { simulated: true, ..StackOptions::default() }).await;
    let answers = Answers::default();
    let client = tokio::spawn(send_requests(stack.https(), answers.clone()));
    for number in 0..times {
        tokio::time::sleep(LOAD_TIME).await;
        match number % 2 {
            0 => master::kill(&mut stack).await,
            _ => master::fail_over(&mut stack).await,
        }
    }
    tokio::time::sleep(LOAD_TIME).await;
    client.abort();
    let _cancelled = client.await;
    // Requests in progress are answered by then, or never.
    tokio::time::sleep(REQUEST_TIMEOUT).await;
    let ended = Instant::now();
    let answers = answers.lock().clone();
    let mut result = judge(&stack, times, &answers).await;
    println!(
        "{times} failovers: {} x 201, {} of them lost, {} x 202",
        result.acknowledged, result.lost, result.stored
    );
    if let Err(wrong) = check_pods(&stack).await {
        result.wrong.push(wrong);
    }
    if let Err(wrong) = check_confirmed(&stack).await {
        result.wrong.push(wrong);
    }
    result.wrong.extend(confirmed_and_lost(&stack).await);
    result.converged = ended.elapsed().as_secs_f64();
    if result.is_broken() {
        result.wrong.push(format!("logs are in {}", stack.keep_logs("failovers").display()));
    }
    result
}

async fn send_requests(https: Vec<Http>, answers: Answers) {
    let mut clock = tokio::time::interval(REQUEST_INTERVAL);
    let mut in_progress = JoinSet::new();
    for number in 0.. {
        clock.tick().await;
        let (http, answers) = (https[number as usize % https.len()].clone(), answers.clone());
        // Spawned twice, so that it is not aborted with this task: a late answer still counts.
        in_progress.spawn(tokio::spawn(async move {
            let body =
                json!({"name": format!("f{number}"), "image": "none", "command": ["true"], "replicas": 1});
            let sent = read_answer(http.try_send(Method::POST, "/service", Some(&body)));
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, sent).await.unwrap_or(Answer::Unknown);
            answers.lock().push((number, answer));
        }));
        while in_progress.try_join_next().is_some() {}
    }
}

async fn judge(stack: &Stack, times: usize, answers: &[(u64, Answer)]) -> FaultResult {
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
    FaultResult {
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
            .map(|name| format!("{name} was answered with 201 and does not exist"))
            .collect(),
        ..FaultResult::default()
    }
}

/// Counts pods: there are thousands.
async fn check_pods(stack: &Stack) -> Result<(), String> {
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
    let converged = async {
        eventually_within(CONVERGENCE_LIMIT * 2, "each service has its pod", || async {
            match count().await {
                Some((services, running, 0)) if services == running => Ok(()),
                other => Err(format!("services, running, waiting: {other:?}")),
            }
        })
        .await;
    };
    match tokio::time::timeout(CONVERGENCE_LIMIT, converged).await {
        Ok(()) => Ok(()),
        Err(_) => Err(format!("not converged within {CONVERGENCE_LIMIT:?}: {:?}", count().await)),
    }
}

async fn check_confirmed(stack: &Stack) -> Result<(), String> {
    let waiting = async || -> Option<u64> {
        let redis = &stack.trio.redis[stack.trio.agreed_master().await?];
        redis.ask(&["HLEN", "unconfirmed"]).await.ok()
    };
    let ended = Instant::now();
    while ended.elapsed() < CONFIRMATION_LIMIT {
        if waiting().await == Some(0) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("not confirmed within {CONFIRMATION_LIMIT:?}: {:?}", waiting().await))
}

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
        let confirmations = page.into_iter().filter(|(_, event)| event["reason"] == "WriteConfirmed");
        confirmed.extend(confirmations.filter_map(|(_, mut event)| event.remove("object")));
    }
    println!("{} services were confirmed later", confirmed.len());
    let lost = confirmed.iter().filter(|name| !names.contains(*name));
    lost.map(|name| format!("{name} was confirmed later and does not exist")).collect()
}
