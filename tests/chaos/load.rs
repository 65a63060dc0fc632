//! Clients that write services through all APIs and record every answer in a journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kubeleet_tests::Http;
use kubeleet_tests::journal::{Answer, Journal, Write, WriteAnswers, WrittenService};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::eventually_within;
use tokio::task::JoinSet;

use crate::engine::IMAGE;

const SERVICES: usize = 36;
/// Longer than an API takes to answer or fail.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);

pub struct Load {
    shared: Arc<Shared>,
    _clients: JoinSet<()>,
}

struct Shared {
    journal: Mutex<Journal>,
    is_running: AtomicBool,
    in_progress: AtomicUsize,
}

impl Load {
    /// Idle before [`Load::resume`].
    pub fn new(https: Vec<Http>, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            journal: Mutex::default(),
            is_running: AtomicBool::new(false),
            in_progress: AtomicUsize::new(0),
        });
        let mut clients = JoinSet::new();
        for (number, http) in https.into_iter().enumerate() {
            let client =
                Poster { shared: shared.clone(), http, random: StdRng::seed_from_u64(seed + number as u64) };
            clients.spawn(client.run());
        }
        Self { shared, _clients: clients }
    }

    pub fn resume(&self) {
        self.shared.is_running.store(true, Ordering::SeqCst);
    }

    /// Returns when no write is outstanding.
    pub async fn pause(&self) {
        self.shared.is_running.store(false, Ordering::SeqCst);
        eventually_within(REQUEST_TIMEOUT * 2, "no write is in progress", || async {
            match self.shared.in_progress.load(Ordering::SeqCst) {
                0 => Ok(()),
                count => Err(format!("{count} are in progress")),
            }
        })
        .await;
    }

    pub fn answers(&self) -> WriteAnswers {
        self.journal().answers
    }

    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        self.shared.journal.lock()
    }
}

struct Poster {
    shared: Arc<Shared>,
    http: Http,
    random: StdRng,
}

impl Poster {
    async fn run(mut self) {
        loop {
            // A pause waits for this write as well.
            self.shared.in_progress.fetch_add(1, Ordering::SeqCst);
            if self.shared.is_running.load(Ordering::SeqCst) {
                self.write().await;
            }
            self.shared.in_progress.fetch_sub(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(self.random.random_range(60..260))).await;
        }
    }

    async fn write(&mut self) {
        let name = format!("s{}", self.random.random_range(0..SERVICES));
        let Some((known, version)) = self.shared.journal.lock().open(&name) else { return };
        let replicas = self.random.random_range(0..=2);
        let write = match (known, self.random.random_range(0..10)) {
            (Some(_), 0) => Write::Delete,
            (Some(_), 1..=4) => Write::Scale(replicas),
            _ => Write::Put(WrittenService { replicas, version }),
        };
        let answer = send(&self.http, &name, write).await;
        self.shared.journal.lock().answered(&name, write, answer);
    }
}

/// Pods of every second service must not run twice.
fn body(name: &str, service: WrittenService) -> Value {
    let is_stop = name.ends_with(['0', '2', '4', '6', '8']);
    json!({
        "name": name, "image": IMAGE, "command": ["/bin/sleep", "86400"], "replicas": service.replicas,
        "stop_grace_period": 0, "on_disconnect": if is_stop { "stop" } else { "keep" },
        "labels": {"v": service.version.to_string()},
    })
}

pub async fn send(http: &Http, name: &str, write: Write) -> Answer {
    let path = format!("/service/{name}");
    let sent = async {
        match write {
            Write::Put(service) => http.try_send(Method::PUT, &path, Some(&body(name, service))).await,
            Write::Scale(replicas) => {
                let body = json!({"replicas": replicas});
                http.try_send(Method::POST, &format!("{path}/scale"), Some(&body)).await
            }
            Write::Delete => http.try_send(Method::DELETE, &path, None).await,
        }
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, read_answer(sent)).await {
        Ok(answer) => answer,
        Err(_) => Answer::Unknown,
    }
}

pub async fn read_answer(sent: impl Future<Output = reqwest::Result<reqwest::Response>>) -> Answer {
    let Ok(response) = sent.await else { return Answer::Unknown };
    let status = response.status();
    let Ok(text) = response.text().await else { return Answer::Unknown };
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    match (status.as_u16(), body["durability"]["state"].as_str()) {
        (200..300, Some("unconfirmed") | None) => Answer::Stored,
        (200..300, Some(_)) => Answer::Durable,
        (404 | 409, _) => Answer::Refused,
        _ => Answer::Unknown,
    }
}
