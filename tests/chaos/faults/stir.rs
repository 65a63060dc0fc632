//! Whatever makes the rarer calls: bad payloads, dead letters that are tried again, pods that fit nowhere, a guest node, a
//! node that dies, containers that vanish, readers of logs.

use std::path::PathBuf;
use std::time::Duration;

use kubeleet_tests::{Http, eventually};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::{IMAGE, View};
use crate::stack::Stack;
use crate::trio::Door;

/// The name of pods that nobody has a service for.
const PUSHED: &str = "pushed";

/// What goes on; [`Stirring::end`] leaves nothing of it.
pub struct Stirring {
    stop: watch::Sender<bool>,
    hands: Hands,
    tasks: JoinSet<()>,
}

/// What the stirring is done with.
#[derive(Clone)]
struct Hands {
    https: Vec<Http>,
    redis: Vec<Door>,
    engine: Option<View>,
    data: PathBuf,
    guest: String,
    nodes: Vec<String>,
}

/// Begins it.
pub fn begin(stack: &Stack) -> Stirring {
    let (stop, stopped) = watch::channel(false);
    let hands = Hands {
        https: stack.https(),
        redis: stack.trio.doors(),
        engine: stack.engine.as_ref().map(|engine| engine.view()),
        data: stack.data(),
        guest: stack.guest(),
        nodes: stack.nodes(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(until(stopped.clone(), hands.clone(), async |hands, turn| hands.queues(turn).await));
    tasks.spawn(until(stopped.clone(), hands.clone(), async |hands, turn| hands.wishes(turn).await));
    tasks.spawn(until(stopped.clone(), hands.clone(), async |hands, turn| hands.readers(turn).await));
    tasks.spawn(until(stopped, hands.clone(), async |hands, turn| hands.nodes(turn).await));
    Stirring { stop, hands, tasks }
}

async fn until(stopped: watch::Receiver<bool>, hands: Hands, stir: impl AsyncFn(&Hands, u64)) {
    for turn in 1.. {
        if *stopped.borrow() {
            return;
        }
        stir(&hands, turn).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

impl Stirring {
    /// Ends it and tidies up what the load does not know.
    pub async fn end(self) {
        self.stop.send_replace(true);
        self.tasks.join_all().await;
        self.hands.tidy().await;
    }
}

impl Hands {
    /// What is no pod, and dead letters that get another try.
    async fn queues(&self, turn: u64) {
        self.redis(&["LPUSH", "sq", "no pod at all"]).await;
        self.redis(&["LPUSH", &format!("pq:{}", self.nodes[1]), "{\"neither\": \"this\"}"]).await;
        let letters = self.send(Method::GET, "/queue/dq?limit=3", None).await;
        for (number, letter) in letters["items"].as_array().into_iter().flatten().enumerate() {
            let id = letter["id"].as_str().unwrap_or_default();
            if (turn + number as u64).is_multiple_of(3) {
                self.send(Method::POST, &format!("/queue/dq/{id}/requeue"), None).await;
            } else {
                self.send(Method::DELETE, &format!("/queue/dq/{id}"), None).await;
            }
        }
        self.kill_a_process(turn);
        // They only save work. A scheduler that has just ended has left its own behind, for seconds.
        self.redis(&["DEL", "lease:guests", "lease:reconcile", "lease:confirm"]).await;
        // As an API leaves it that ends before it has heard of the replicas.
        self.redis(&["HSETNX", "unconfirmed", "huge", "left-behind 1 0"]).await;
    }

    /// A service that fits nowhere, then does, then is gone; pods that are deleted, containers that vanish.
    async fn wishes(&self, turn: u64) {
        let memory = if turn % 4 < 2 { "900Gi" } else { "1Mi" };
        let body = json!({
            "name": "huge", "image": IMAGE, "command": ["/bin/sleep", "86400"], "replicas": 1 + turn % 2,
            "memory": memory, "stop_grace_period": 0,
        });
        self.send(Method::PUT, "/service/huge", Some(&body)).await;
        if turn.is_multiple_of(4) {
            self.send(Method::DELETE, "/service/huge", None).await;
        }
        let pods = self.send(Method::GET, "/pod?limit=200", None).await;
        let uuids: Vec<&str> =
            pods["items"].as_array().into_iter().flatten().filter_map(|pod| pod["uuid"].as_str()).collect();
        if let Some(uuid) = uuids.get(turn as usize % uuids.len().max(1)) {
            self.send(Method::DELETE, &format!("/pod/{uuid}"), None).await;
        }
        if let Some(engine) = self.engine.as_ref().filter(|_| turn.is_multiple_of(3)) {
            engine.remove_one().await;
        }
    }

    /// Whoever looks.
    async fn readers(&self, turn: u64) {
        for path in ["/readyz", "/status", "/queue", "/node", "/service?limit=20", "/event?limit=5"] {
            self.send(Method::GET, path, None).await;
        }
        let word = if turn.is_multiple_of(2) { "cordon" } else { "uncordon" };
        self.send(Method::POST, &format!("/node/{}/{word}", self.nodes[2]), None).await;
        let pods = self.send(Method::GET, "/pod?limit=200", None).await;
        let here = |pod: &&Value| pod["node"] == *self.nodes[0] && pod["phase"] == "running";
        for pod in pods["items"].as_array().into_iter().flatten().filter(here).take(2) {
            let uuid = pod["uuid"].as_str().unwrap_or_default();
            self.send(Method::GET, &format!("/pod/{uuid}/log?tail=3"), None).await;
        }
    }

    /// A guest that lives, and every few seconds one that dies with something in its queue.
    async fn nodes(&self, turn: u64) {
        let guest = &self.guest;
        self.redis(&["SET", &format!("hb:{guest}"), &turn.to_string()]).await;
        if turn % 8 == 1 {
            self.push(guest, &format!("{guest}-{turn}")).await;
        }
        self.serve_guest(guest).await;
        if turn % 20 == 5 {
            let ghost = format!("{guest}-{turn}");
            self.redis(&["SET", &format!("hb:{ghost}"), "1"]).await;
            self.push(&ghost, &format!("{ghost}-pod")).await;
        }
    }

    /// A pod of somebody's own.
    async fn push(&self, node: &str, uuid: &str) {
        let pod = json!({"name": PUSHED, "uuid": uuid, "image": IMAGE, "replica": 0, "command": ["/bin/sleep", "86400"]});
        self.redis(&["LPUSH", &format!("pq:{node}"), &pod.to_string()]).await;
    }

    /// As the first kubeleet's worker: BRPOPLPUSH, start, SADD, LREM.
    async fn serve_guest(&self, guest: &str) {
        let Some(redis) = self.master().await else { return };
        let (pending, starting) = (format!("pq:{guest}"), format!("rq:{guest}"));
        let moved: Result<Option<String>, _> = redis.ask(&["RPOPLPUSH", &pending, &starting]).await;
        if let Ok(Some(payload)) = moved {
            self.redis(&["SADD", &format!("cs:{guest}"), &payload]).await;
            self.redis(&["LREM", &starting, "-1", &payload]).await;
        }
    }

    /// A pod that is a plain process; its worker has to start it again.
    fn kill_a_process(&self, turn: u64) {
        let processes = kubeleet_tests::processes::leaders_below(&self.data);
        let chosen = processes.get(turn as usize % processes.len().max(1));
        if let Some(process) = chosen.and_then(|(_, id)| Pid::from_raw(i32::try_from(*id).ok()?)) {
            let _gone = kill_process(process, Signal::KILL);
        }
    }

    /// The guests are silent from now on: their pods move, and are deleted.
    async fn tidy(&self) {
        // Several at once look like a mass loss, and nobody is declared dead before a person has given them up.
        let nodes = self.send(Method::GET, "/node?limit=1000", None).await;
        let names = nodes["items"].as_array().into_iter().flatten().filter_map(|node| node["name"].as_str());
        for name in names.filter(|name| name.starts_with(&self.guest)) {
            self.send(Method::POST, &format!("/node/{name}/cordon"), None).await;
        }
        eventually(Duration::from_secs(60), "what was stirred is gone", || async {
            for node in &self.nodes {
                self.send(Method::POST, &format!("/node/{node}/uncordon"), None).await;
            }
            self.send(Method::DELETE, "/service/huge", None).await;
            let letters = self.list("/queue/dq?limit=100").await;
            let letters: Vec<String> = letters["items"]
                .as_array()
                .ok_or("the letters can not be read")?
                .iter()
                .filter_map(|letter| letter["id"].as_str().map(str::to_owned))
                .collect();
            for id in &letters {
                self.send(Method::DELETE, &format!("/queue/dq/{id}"), None).await;
            }
            let pods = self.list("/pod?limit=1000").await;
            let pushed = pods["items"].as_array().ok_or("the pods can not be read")?.iter();
            let pushed: Vec<&Value> =
                pushed.filter(|pod| pod["name"] == PUSHED && pod["phase"] != "stopped").collect();
            for pod in &pushed {
                self.send(
                    Method::DELETE,
                    &format!("/pod/{}", pod["uuid"].as_str().unwrap_or_default()),
                    None,
                )
                .await;
            }
            if letters.is_empty() && pushed.is_empty() {
                Ok(())
            } else {
                Err(format!("{letters:?} {pushed:?}"))
            }
        })
        .await;
    }

    async fn master(&self) -> Option<&Door> {
        for door in &self.redis {
            let role: Result<Vec<redis::Value>, _> = door.ask(&["ROLE"]).await;
            let name = role.ok().and_then(|role| role.into_iter().next());
            if name == Some(redis::Value::BulkString(b"master".to_vec())) {
                return Some(door);
            }
        }
        None
    }

    async fn redis(&self, words: &[&str]) {
        if let Some(master) = self.master().await {
            let _lost: Result<redis::Value, _> = master.ask(words).await;
        }
    }

    /// Through any API: one of them ends again and again. Some answers are streams that never end.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        self.send_within(Duration::from_secs(1), method, path, body).await
    }

    /// What may be long, and takes its time on a busy machine.
    async fn list(&self, path: &str) -> Value {
        self.send_within(Duration::from_secs(10), Method::GET, path, None).await
    }

    async fn send_within(&self, limit: Duration, method: Method, path: &str, body: Option<&Value>) -> Value {
        for http in &self.https {
            let asked = async { http.try_send(method.clone(), path, body).await?.json().await };
            if let Ok(Ok(answer)) = tokio::time::timeout(limit, asked).await {
                return answer;
            }
        }
        Value::Null
    }
}
