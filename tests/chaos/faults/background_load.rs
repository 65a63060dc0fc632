//! Background load for the rarer calls.

use std::path::PathBuf;
use std::time::Duration;

use kubeleet_tests::Http;
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::eventually::eventually_within;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::{EngineView, IMAGE};
use crate::stack::Stack;
use crate::trio;

const PUSHED: &str = "pushed";
/// It fits nowhere half of the time.
const HUGE: &str = "huge";
const PAUSE: Duration = Duration::from_millis(150);
/// The API may be down, and some responses never end.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

pub struct BackgroundLoad {
    stop: watch::Sender<bool>,
    clients: StackClients,
    tasks: JoinSet<()>,
}

#[derive(Clone)]
struct StackClients {
    https: Vec<Http>,
    redis: Vec<String>,
    engine: Option<EngineView>,
    data: PathBuf,
    external_node: String,
    nodes: Vec<String>,
}

impl BackgroundLoad {
    pub fn start(stack: &Stack) -> Self {
        let (stop, stopped) = watch::channel(false);
        let clients = StackClients {
            https: stack.https(),
            redis: stack.trio.redis_urls(),
            engine: stack.engine.as_ref().map(|engine| engine.view()),
            data: stack.data(),
            external_node: stack.external_node(),
            nodes: stack.nodes(),
        };
        let mut tasks = JoinSet::new();
        let new = || (stopped.clone(), clients.clone());
        tasks.spawn(repeat(new(), async |clients, round| clients.load_queues(round).await));
        tasks.spawn(repeat(new(), async |clients, round| clients.load_services(round).await));
        tasks.spawn(repeat(new(), async |clients, round| clients.read_everything(round).await));
        tasks.spawn(repeat(new(), async |clients, round| clients.load_external_nodes(round).await));
        Self { stop, clients, tasks }
    }

    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.tasks.join_all().await;
        self.clients.clean_up().await;
    }
}

async fn repeat(
    (stopped, clients): (watch::Receiver<bool>, StackClients),
    load: impl AsyncFn(&StackClients, u64),
) {
    for round in 1.. {
        if *stopped.borrow() {
            return;
        }
        load(&clients, round).await;
        tokio::time::sleep(PAUSE).await;
    }
}

impl StackClients {
    async fn load_queues(&self, round: u64) {
        self.redis(&["LPUSH", "sq", "no pod at all"]).await;
        self.redis(&["LPUSH", &format!("pq:{}", self.nodes[1]), "{\"neither\": \"this\"}"]).await;
        let dead_letters = self.send(Method::GET, "/queue/dq?limit=3", None).await;
        for (number, dead_letter) in items(&dead_letters).enumerate() {
            let id = dead_letter["id"].as_str().unwrap_or_default();
            if (round + number as u64).is_multiple_of(3) {
                self.send(Method::POST, &format!("/queue/dq/{id}/requeue"), None).await;
            } else {
                self.send(Method::DELETE, &format!("/queue/dq/{id}"), None).await;
            }
        }
        self.kill_a_process(round);
        // A scheduler that has just ended leaves its leases for seconds.
        self.redis(&["DEL", "lease:guests", "lease:reconcile", "lease:confirm"]).await;
        // As left by an API that ends before the replicas have answered.
        self.redis(&["HSETNX", "unconfirmed", HUGE, "left-behind 1 0"]).await;
    }

    async fn load_services(&self, round: u64) {
        let memory = if round % 4 < 2 { "900Gi" } else { "1Mi" };
        let body = json!({
            "name": HUGE, "image": IMAGE, "command": ["/bin/sleep", "86400"], "replicas": 1 + round % 2,
            "memory": memory, "stop_grace_period": 0,
        });
        self.send(Method::PUT, &format!("/service/{HUGE}?allow_partial=true"), Some(&body)).await;
        if round.is_multiple_of(4) {
            self.send(Method::DELETE, &format!("/service/{HUGE}"), None).await;
        }
        let pods = self.send(Method::GET, "/pod?limit=200", None).await;
        let uuids: Vec<&str> = items(&pods).filter_map(|pod| pod["uuid"].as_str()).collect();
        if let Some(uuid) = uuids.get(round as usize % uuids.len().max(1)) {
            self.send(Method::DELETE, &format!("/pod/{uuid}"), None).await;
        }
        if let Some(engine) = self.engine.as_ref().filter(|_| round.is_multiple_of(3)) {
            engine.remove_one().await;
        }
    }

    async fn read_everything(&self, round: u64) {
        for path in ["/readyz", "/status", "/queue", "/node", "/service?limit=20", "/event?limit=5"] {
            self.send(Method::GET, path, None).await;
        }
        let action = if round.is_multiple_of(2) { "cordon" } else { "uncordon" };
        self.send(Method::POST, &format!("/node/{}/{action}", self.nodes[2]), None).await;
        let pods = self.send(Method::GET, "/pod?limit=200", None).await;
        let runs_on_first = |pod: &&Value| pod["node"] == *self.nodes[0] && pod["phase"] == "running";
        for pod in items(&pods).filter(runs_on_first).take(2) {
            let uuid = pod["uuid"].as_str().unwrap_or_default();
            self.send(Method::GET, &format!("/pod/{uuid}/log?tail=3"), None).await;
        }
    }

    /// One of the workers dies with a payload every few seconds.
    async fn load_external_nodes(&self, round: u64) {
        let node = &self.external_node;
        self.redis(&["SET", &format!("hb:{node}"), &round.to_string()]).await;
        if round % 8 == 1 {
            self.push(node, &format!("{node}-{round}")).await;
        }
        self.serve_queue(node).await;
        // A worker exists from the first change of its value.
        let (nth, phase) = (round / 20, round % 20);
        let dying = format!("{node}-{nth}");
        if (5..15).contains(&phase) {
            self.redis(&["SET", &format!("hb:{dying}"), &phase.to_string()]).await;
        }
        if phase == 15 {
            self.push(&dying, &format!("{dying}-pod")).await;
        }
    }

    async fn push(&self, node: &str, uuid: &str) {
        let pod = json!({
            "name": PUSHED, "uuid": uuid, "image": IMAGE, "replica": 0, "command": ["/bin/sleep", "86400"],
        });
        self.redis(&["LPUSH", &format!("pq:{node}"), &pod.to_string()]).await;
    }

    /// As the first kubeleet's worker does.
    async fn serve_queue(&self, node: &str) {
        let Some(redis) = self.master().await else { return };
        let (pending, starting) = (format!("pq:{node}"), format!("rq:{node}"));
        let moved: Result<Option<String>, _> = trio::ask(redis, &["RPOPLPUSH", &pending, &starting]).await;
        if let Ok(Some(payload)) = moved {
            self.redis(&["SADD", &format!("cs:{node}"), &payload]).await;
            self.redis(&["LREM", &starting, "-1", &payload]).await;
        }
    }

    /// Its worker must restart it.
    fn kill_a_process(&self, round: u64) {
        let processes = kubeleet_tests::processes::leaders_below(&self.data);
        let chosen = processes.get(round as usize % processes.len().max(1));
        if let Some(process) = chosen.and_then(|(_, id)| Pid::from_raw(i32::try_from(*id).ok()?)) {
            let _gone = kill_process(process, Signal::KILL);
        }
    }

    async fn clean_up(&self) {
        // Several silent nodes at once look like a mass loss, in which only cordoned ones are declared dead.
        let nodes = self.send(Method::GET, "/node?limit=1000", None).await;
        let names = items(&nodes).filter_map(|node| node["name"].as_str());
        for name in names.filter(|name| name.starts_with(&self.external_node)) {
            self.send(Method::POST, &format!("/node/{name}/cordon"), None).await;
        }
        eventually_within(Duration::from_secs(60), "the background load has left nothing", || async {
            for node in &self.nodes {
                self.send(Method::POST, &format!("/node/{node}/uncordon"), None).await;
            }
            self.send(Method::DELETE, &format!("/service/{HUGE}"), None).await;
            let dead_letters = self.list("/queue/dq?limit=100").await;
            let dead_letters: Vec<&str> = dead_letters["items"]
                .as_array()
                .ok_or("the dead letters cannot be read")?
                .iter()
                .filter_map(|dead_letter| dead_letter["id"].as_str())
                .collect();
            for id in &dead_letters {
                self.send(Method::DELETE, &format!("/queue/dq/{id}"), None).await;
            }
            let pods = self.list("/pod?limit=1000").await;
            let pods = pods["items"].as_array().ok_or("the pods cannot be read")?.iter();
            let is_pushed = |pod: &&Value| pod["name"] == PUSHED && pod["phase"] != "stopped";
            let pushed: Vec<&Value> = pods.filter(is_pushed).collect();
            for pod in &pushed {
                let uuid = pod["uuid"].as_str().unwrap_or_default();
                self.send(Method::DELETE, &format!("/pod/{uuid}"), None).await;
            }
            if dead_letters.is_empty() && pushed.is_empty() {
                Ok(())
            } else {
                Err(format!("{dead_letters:?} {pushed:?}"))
            }
        })
        .await;
    }

    async fn master(&self) -> Option<&String> {
        for url in &self.redis {
            let role: Result<Vec<redis::Value>, _> = trio::ask(url, &["ROLE"]).await;
            let name = role.ok().and_then(|role| role.into_iter().next());
            if name == Some(redis::Value::BulkString(b"master".to_vec())) {
                return Some(url);
            }
        }
        None
    }

    /// It may be lost.
    async fn redis(&self, words: &[&str]) {
        if let Some(master) = self.master().await {
            let _lost: Result<redis::Value, _> = trio::ask(master, words).await;
        }
    }

    /// Null if no API answers.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        self.send_within(REQUEST_TIMEOUT, method, path, body).await
    }

    async fn list(&self, path: &str) -> Value {
        self.send_within(LIST_TIMEOUT, Method::GET, path, None).await
    }

    async fn send_within(&self, limit: Duration, method: Method, path: &str, body: Option<&Value>) -> Value {
        for http in &self.https {
            let request = async { http.try_send(method.clone(), path, body).await?.json().await };
            if let Ok(Ok(answer)) = tokio::time::timeout(limit, request).await {
                return answer;
            }
        }
        Value::Null
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
