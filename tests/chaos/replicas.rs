//! Both replicas are away for a while. No node may be declared dead for that, and no pod may move.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeleet_tests::{Http, Keyspace};
use reqwest::Method;
use serde_json::{Value, json};

use crate::engine::IMAGE;
use crate::report::FaultResult;
use crate::stack::{DEAD_AFTER, Stack, StackOptions};

/// The time until a node is dead.
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(60);

/// `min-replicas-max-lag`, and the second between two checks.
const MAX_LAG: Duration = Duration::from_secs(4);

const SAID_WITHIN: Duration = Duration::from_secs(5);

pub async fn run(away: Duration, times: usize) -> FaultResult {
    let stack = Stack::start(StackOptions::default()).await;
    let http = stack.https().remove(0);
    for (number, on_disconnect) in ["keep", "keep", "keep", "stop"].into_iter().enumerate() {
        let service = json!({
            "name": format!("s{number}"), "image": IMAGE, "command": ["/bin/sleep", "86400"],
            "replicas": 3, "on_disconnect": on_disconnect,
        });
        http.send(Method::PUT, &format!("/service/s{number}"), Some(&service)).await;
    }
    let fault = format!("both replicas away for {away:.0?}");
    let mut result = FaultResult { fault, ..FaultResult::default() };
    let (mut keyspace, missing) = stack.wait_until_converged(CONVERGENCE_LIMIT).await;
    result.wrong.extend(missing.into_iter().filter(|_| keyspace.is_none()));
    for _ in 0..times {
        let Some(before) = keyspace else { break };
        let master = stack.trio.master().await;
        let replicas = [(master + 1) % 3, (master + 2) % 3];
        replicas.iter().for_each(|replica| stack.trio.redis[*replica].freeze());
        let frozen = Instant::now();
        result.wrong.extend(wait_until_said(&http, frozen + MAX_LAG + SAID_WITHIN).await);
        tokio::time::sleep(away.saturating_sub(frozen.elapsed())).await;
        replicas.iter().for_each(|replica| stack.trio.redis[*replica].thaw());
        let returned = Instant::now();
        stack.trio.wait_until_well().await;
        // A death that the outage has caused comes within this time.
        tokio::time::sleep(DEAD_AFTER + DEAD_AFTER / 2).await;
        let (after, missing) = stack.wait_until_converged(CONVERGENCE_LIMIT).await;
        result.injected += 1;
        result.converged = result.converged.max(returned.elapsed().as_secs_f64());
        match &after {
            Some(after) => result.wrong.extend(moved(&before, after)),
            None => {
                result.wrong.push(format!("not converged within {CONVERGENCE_LIMIT:?}: {missing:?}"));
            }
        }
        keyspace = after;
    }
    if result.is_broken() {
        result.wrong.push(format!("logs are in {}", stack.keep_logs("replicas").display()));
    }
    result
}

async fn wait_until_said(http: &Http, deadline: Instant) -> Option<String> {
    let mut problems = Value::Null;
    while Instant::now() < deadline {
        if let Ok(response) = http.try_send(Method::GET, "/status", None).await {
            problems = response.json::<Value>().await.unwrap_or_default()["problems"].take();
        }
        if problems.to_string().contains("Redis takes no writes") {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Some(format!("status did not say in time that Redis takes no writes: {problems}"))
}

fn moved(before: &Keyspace, after: &Keyspace) -> Vec<String> {
    let died =
        after.below("node:").filter(|(name, _)| !after.field(&format!("node:{name}"), "dead_at").is_empty());
    let mut wrong: Vec<String> = died.map(|(name, _)| format!("node {name} was declared dead")).collect();
    let (before, after) = (places(before), places(after));
    for (pod, place) in &before {
        if after.get(pod) != Some(place) {
            wrong.push(format!("pod {pod} was at {place:?} and is at {:?}", after.get(pod)));
        }
    }
    wrong
}

/// With assignment and restarts for pods that run on without Redis.
fn places(keyspace: &Keyspace) -> BTreeMap<String, Vec<String>> {
    let place = |id: &str| {
        let field = |name| keyspace.field(&format!("pod:{id}"), name).to_owned();
        let is_kept = field("service") != "s3";
        let fields = if is_kept { vec!["node", "assignment", "restarts"] } else { vec!["node"] };
        fields.into_iter().map(field).collect()
    };
    keyspace.below("pod:").map(|(id, _)| (id.to_owned(), place(id))).collect()
}
