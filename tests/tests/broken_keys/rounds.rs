//! One round: keys are broken, everything else continues, and afterwards the cluster is whole again.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeleet_tests::in_process::InProcessCluster;
use kubeleet_tests::invariants::{against_containers, services_unrest};
use kubeleet_tests::recorded_engine::Act;
use model::ids::{NodeName, PodId};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::check;

use crate::explain::{explain, explain_named_in};
use crate::wrong_values::{Command, WrongValue};

/// Long enough for two comparisons of all keys.
const HEALING: Duration = Duration::from_secs(40);
const SOON: Duration = Duration::from_secs(20);

pub(crate) const TOO_LARGE: &str = "too-large";

/// Only these objects may be harmed.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) pods: BTreeSet<PodId>,
    pub(crate) nodes: BTreeSet<NodeName>,
    /// Services without a record: they have to be created again.
    pub(crate) services: BTreeSet<String>,
}

pub(crate) struct Walk {
    pub(crate) cluster: InProcessCluster,
    pub(crate) services: Vec<Value>,
    rounds: usize,
    failures: Vec<String>,
}

impl Walk {
    pub(crate) fn new(cluster: InProcessCluster, services: Vec<Value>) -> Self {
        Self { cluster, services, rounds: 0, failures: Vec::new() }
    }

    pub(crate) fn finish(self) {
        assert!(self.failures.is_empty(), "{} failures:\n{}", self.failures.len(), self.failures.join("\n"));
    }

    pub(crate) fn fail(&mut self, round: &str, what: String) {
        println!("FAILED {round}: {what:.8000}");
        self.failures.push(format!("{round}: {what}"));
    }

    pub(crate) async fn round(&mut self, title: &str, broken: &[WrongValue], named: &Named) {
        let begin = std::time::Instant::now();
        let acts_before = self.cluster.engine.len();
        self.cluster.engine.forget_pauses();
        let leftovers = without_record(&self.cluster).await;
        self.write(broken.iter().flat_map(|value| &value.commands)).await;
        self.cluster.request_full_pass().await;
        if let Err(wrong) = self.goes_on(named).await {
            self.fail(title, wrong);
        }
        for wrong in self.not_named(broken).await {
            self.fail(title, wrong);
        }
        let whole = match self.repaired(named).await {
            Ok(()) => self.settled().await,
            Err(wrong) => Err(wrong),
        };
        if let Err(wrong) = whole {
            let why = explain_named_in(&self.cluster, &wrong).await;
            self.fail(title, format!("{wrong}\n{why}"));
        }
        for act in self.cluster.engine.acts_since(acts_before) {
            let is_canary = act.handle.contains("/canary-");
            let is_named = named.pods.contains(&act.pod) || leftovers.contains(act.pod.as_str());
            if act.act != Act::Started && !is_canary && !is_named {
                let why = explain(&self.cluster, &act.pod, &act.handle).await;
                let what = format!("{} was {:?} although no write names it", act.handle, act.act);
                self.fail(title, format!("{what}\n{why}"));
            }
        }
        if let Some(why) = self.cluster.ended() {
            panic!("{title}: a daemon ended: {why}");
        }
        let longest_pause = self.cluster.engine.longest_pauses().into_values().max().unwrap_or_default();
        println!(
            "{title}: {} values in {:.1?}, longest pause between heartbeats {longest_pause:.1?}",
            broken.len(),
            begin.elapsed()
        );
    }

    pub(crate) async fn look(&mut self, title: &str, named: &Named) {
        let begin = std::time::Instant::now();
        self.cluster.request_full_pass().await;
        if let Err(wrong) = self.goes_on(named).await {
            self.fail(title, wrong);
        }
        if let Err(wrong) = self.repaired(named).await {
            self.fail(title, wrong);
        }
        if let Some(why) = self.cluster.ended() {
            panic!("{title}: a daemon ended: {why}");
        }
        println!("{title}: whole again in {:.1?}", begin.elapsed());
    }

    pub(crate) fn stop_if_failed(&self, title: &str) {
        assert!(self.failures.is_empty(), "{title}:\n{}", self.failures.join("\n"));
    }

    pub(crate) async fn write_leniently(&self, commands: &[Command]) {
        let mut pipe = ::redis::pipe();
        for words in commands {
            let mut cmd = ::redis::Cmd::new();
            for word in words {
                cmd.arg(word.as_slice());
            }
            pipe.add_command(cmd);
        }
        pipe.ignore_errors();
        let mut connection = self.cluster.redis.connection().await.unwrap();
        let _replies: Vec<Result<::redis::Value, ::redis::RedisError>> =
            pipe.query_async(&mut connection).await.unwrap();
    }

    async fn write<'a>(&self, commands: impl Iterator<Item = &'a Command>) {
        let mut pipe = ::redis::pipe();
        for words in commands {
            let mut cmd = ::redis::Cmd::new();
            for word in words {
                cmd.arg(word.as_slice());
            }
            pipe.add_command(cmd);
        }
        let mut connection = self.cluster.redis.connection().await.unwrap();
        let _replies: ::redis::Value = pipe.query_async(&mut connection).await.unwrap();
    }

    async fn goes_on(&mut self, named: &Named) -> Result<(), String> {
        self.rounds += 1;
        let http = &self.cluster.http;
        for path in ["/status", "/service", "/pod", "/node", "/queue", "/metrics"] {
            let (status, body) = http.send(Method::GET, path, None).await;
            check(status.is_success(), || format!("GET {path}: {status} {body:.300}"))?;
        }
        let name = format!("canary-{}", self.rounds);
        let canary = json!({"name": name, "image": "canary", "replicas": 1});
        let path = format!("/service/{name}");
        wait(SOON, || async {
            let (status, body) = http.send(Method::PUT, &path, Some(&canary)).await;
            check(status.is_success(), || format!("PUT {path}: {status} {body:.300}"))
        })
        .await?;
        wait(SOON, || async {
            let (status, body) = http.send(Method::GET, &path, None).await;
            check(body["status"]["running"] == 1, || format!("{name} does not run: {status} {body:.600}"))
        })
        .await?;
        wait(SOON, || async {
            let (status, body) = http.send(Method::DELETE, &path, None).await;
            check(status.is_success(), || format!("DELETE {path}: {status} {body:.300}"))
        })
        .await?;
        wait(SOON, || async {
            let (status, body) = http.send(Method::GET, &path, None).await;
            check(status == 404, || format!("{name} does not end: {status} {body:.600}"))
        })
        .await?;
        let bystanders: Vec<NodeName> =
            self.cluster.nodes.iter().filter(|node| !named.nodes.contains(*node)).cloned().collect();
        self.cluster.heartbeats_go_on(&bystanders).await
    }

    async fn not_named(&self, broken: &[WrongValue]) -> Vec<String> {
        let (_, found) = self.cluster.http.send(Method::GET, "/cluster/check", None).await;
        let found: BTreeSet<&str> =
            found["items"].as_array().into_iter().flatten().filter_map(|item| item["key"].as_str()).collect();
        let mut missing = Vec::new();
        for value in broken {
            if self.is_unreadable(&value.key).await && !found.contains(value.key.as_str()) {
                missing.push(format!("{} is broken ({}) and not named", value.key, value.what));
            }
        }
        missing
    }

    async fn is_unreadable(&self, key: &str) -> bool {
        let store = &self.cluster.store;
        match key.split_once(':') {
            Some(("pod", id)) => match PodId::new(id) {
                Ok(id) => store.pod(&id).await.is_err(),
                Err(_) => false,
            },
            Some(("node", name)) => store.node(&NodeName::new(name).unwrap()).await.is_err(),
            Some(("service", name)) => store.service(&name.parse().unwrap()).await.is_err(),
            Some(("slots", name)) => store.slots(&name.parse().unwrap()).await.is_err(),
            _ => false,
        }
    }

    async fn repaired(&mut self, named: &Named) -> Result<(), String> {
        let http = &self.cluster.http;
        wait(HEALING, || async {
            self.cluster.request_full_pass().await;
            let (status, _) = http.send(Method::POST, "/cluster/repair", None).await;
            check(status.is_success(), || format!("repair: {status}"))?;
            for service in self.services.iter().filter(|s| named.services.contains(name_of(s))) {
                let path = format!("/service/{}?allow_partial=true", name_of(service));
                let (status, body) = http.send(Method::PUT, &path, Some(service)).await;
                check(status.is_success(), || format!("PUT {path}: {status} {body:.300}"))?;
            }
            let (_, found) = http.send(Method::GET, "/cluster/check", None).await;
            let left: Vec<String> = found["items"].as_array().into_iter().flatten().map(describe).collect();
            check(left.is_empty(), || format!("{} findings stay: {:.2000}", left.len(), left.join("; ")))
        })
        .await?;
        wait(HEALING, || async {
            let (_, body) = http.send(Method::GET, "/service?limit=1000", None).await;
            let listed = body["items"].as_array().cloned().unwrap_or_default();
            for service in &self.services {
                let found = listed.iter().find(|found| found["name"] == service["name"]);
                let Some(found) = found else { return Err(format!("{} is not listed", name_of(service))) };
                let runs = found["status"]["running"] == service["replicas"] || service["image"] == TOO_LARGE;
                check(runs, || format!("{}: {}", name_of(service), found["status"]))?;
            }
            let (_, body) = http.send(Method::GET, "/node?limit=1000", None).await;
            let nodes = body["items"].as_array().cloned().unwrap_or_default();
            let (ready, other): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node["ready"] == true);
            let is_missing = |node: &&NodeName| !nodes.iter().any(|found| found["name"] == node.as_str());
            let missing: Vec<&NodeName> = self.cluster.nodes.iter().filter(is_missing).collect();
            if let Some(node) = missing.first() {
                let record = self.cluster.redis_keyspace().await.fields(&format!("node:{node}"));
                return Err(format!("{missing:?} are not listed: {record:?}"));
            }
            check(ready.len() == self.cluster.nodes.len(), || format!("not all nodes are ready: {other:?}"))
        })
        .await
    }

    async fn settled(&self) -> Result<(), String> {
        wait(HEALING, || async { settled(&self.cluster, &self.services).await }).await
    }
}

/// The next round would be blamed for its end.
async fn settled(cluster: &InProcessCluster, services: &[Value]) -> Result<(), String> {
    let keyspace = cluster.redis_keyspace().await;
    let is_queue =
        |key: &str| key == "sq" || ["fq:", "pq:", "rq:"].iter().any(|prefix| key.starts_with(prefix));
    let queues = keyspace.entries().map(|(key, _)| key).filter(|key| is_queue(key));
    let full = queues.filter(|key| !keyspace.elements(key).is_empty());
    let mut unrest: Vec<String> = full.map(|key| format!("{key} is not empty")).collect();
    let fitting = services.iter().filter(|service| service["image"] != TOO_LARGE).map(name_of);
    unrest.extend(services_unrest(&keyspace, fitting));
    // If most records are lost, the worker leaves the containers alone until a person decides.
    let is_holding = |node: &&NodeName| !keyspace.field("held", node.as_str()).is_empty();
    let nodes = cluster.nodes.iter().filter(|node| !is_holding(node));
    let nodes: Vec<NodeName> = nodes.cloned().collect();
    let names: Vec<String> = nodes.iter().map(NodeName::to_string).collect();
    unrest.extend(against_containers(&keyspace, &names, &cluster.engine.containers(&nodes).await));
    check(unrest.is_empty(), || unrest.join("; "))
}

async fn without_record(cluster: &InProcessCluster) -> BTreeSet<String> {
    let keyspace = cluster.redis_keyspace().await;
    let running = cluster.engine.containers(&cluster.nodes).await.into_iter().map(|running| running.pod);
    running.filter(|pod| keyspace.get(&format!("pod:{pod}")).is_none()).collect()
}

fn describe(finding: &Value) -> String {
    let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    format!("{}: {} ({})", text("key"), text("problem"), text("repair"))
}

pub(crate) fn name_of(service: &Value) -> &str {
    service["name"].as_str().unwrap_or_default()
}

/// Returns the last state instead of failing the test.
async fn wait<F: Future<Output = Result<(), String>>>(
    limit: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<(), String> {
    let begin = std::time::Instant::now();
    loop {
        match probe().await {
            Ok(()) => return Ok(()),
            Err(state) if begin.elapsed() > limit => return Err(state),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
