//! The client: writes services through all APIs, and takes down every answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kubeleet_tests::book::{Answer, Answers, Book, Wish, Write};
use kubeleet_tests::{Http, eventually};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::engine::IMAGE;

/// How many services there are.
const SERVICES: usize = 36;
/// Longer than an API may take; after it the answer is lost.
const PATIENCE: Duration = Duration::from_secs(12);

/// The client. Dropped, it stops.
pub struct Load {
    shared: Arc<Shared>,
    _clients: JoinSet<()>,
}

struct Shared {
    book: Mutex<Book>,
    runs: AtomicBool,
    under_way: AtomicUsize,
}

impl Load {
    /// One client for each API; they wait until [`Load::go`].
    pub fn new(https: Vec<Http>, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            book: Mutex::default(),
            runs: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
        });
        let mut clients = JoinSet::new();
        for (number, http) in https.into_iter().enumerate() {
            let client =
                Client { shared: shared.clone(), http, dice: StdRng::seed_from_u64(seed + number as u64) };
            clients.spawn(client.run());
        }
        Self { shared, _clients: clients }
    }

    /// Writes from now on.
    pub fn go(&self) {
        self.shared.runs.store(true, Ordering::SeqCst);
    }

    /// No more writes; returns when every answer is there, or lost for good.
    pub async fn pause(&self) {
        self.shared.runs.store(false, Ordering::SeqCst);
        eventually(PATIENCE * 2, "every answer is there", || async {
            match self.shared.under_way.load(Ordering::SeqCst) {
                0 => Ok(()),
                count => Err(format!("{count} are under way")),
            }
        })
        .await;
    }

    /// All answers so far.
    pub fn answers(&self) -> Answers {
        self.book().answers
    }

    /// What it was told.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.shared.book.lock().unwrap()
    }
}

struct Client {
    shared: Arc<Shared>,
    http: Http,
    dice: StdRng,
}

impl Client {
    async fn run(mut self) {
        loop {
            // First counted, then looked: whoever pauses us waits for this one as well.
            self.shared.under_way.fetch_add(1, Ordering::SeqCst);
            if self.shared.runs.load(Ordering::SeqCst) {
                self.write().await;
            }
            self.shared.under_way.fetch_sub(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(self.dice.random_range(60..260))).await;
        }
    }

    async fn write(&mut self) {
        let name = format!("s{}", self.dice.random_range(0..SERVICES));
        let Some((known, version)) = self.shared.book.lock().unwrap().open(&name) else { return };
        let replicas = self.dice.random_range(0..=2);
        let write = match (known, self.dice.random_range(0..10)) {
            (Some(_), 0) => Write::Delete,
            (Some(_), 1..=4) => Write::Scale(replicas),
            _ => Write::Put(Wish { replicas, version }),
        };
        let answer = send(&self.http, &name, write).await;
        self.shared.book.lock().unwrap().answered(&name, write, answer);
    }
}

/// Every second service must never run twice.
fn service(name: &str, wish: Wish) -> Value {
    let stop = name.ends_with(['0', '2', '4', '6', '8']);
    json!({
        "name": name, "image": IMAGE, "command": ["/bin/sleep", "86400"], "replicas": wish.replicas,
        "stop_grace_period": 0, "on_disconnect": if stop { "stop" } else { "keep" },
        "labels": {"v": wish.version.to_string()},
    })
}

/// Sends a write and says how it was answered.
pub async fn send(http: &Http, name: &str, write: Write) -> Answer {
    let path = format!("/service/{name}");
    let sent = async {
        match write {
            Write::Put(wish) => http.try_send(Method::PUT, &path, Some(&service(name, wish))).await,
            Write::Scale(replicas) => {
                let body = json!({"replicas": replicas});
                http.try_send(Method::POST, &format!("{path}/scale"), Some(&body)).await
            }
            Write::Delete => http.try_send(Method::DELETE, &path, None).await,
        }
    };
    match tokio::time::timeout(PATIENCE, read(sent)).await {
        Ok(answer) => answer,
        Err(_) => Answer::Unknown,
    }
}

/// What a response says of the write.
pub async fn read(sent: impl Future<Output = reqwest::Result<reqwest::Response>>) -> Answer {
    let Ok(response) = sent.await else { return Answer::Unknown };
    let status = response.status();
    let Ok(text) = response.text().await else { return Answer::Unknown };
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    match (status.as_u16(), body["durability"]["state"].as_str()) {
        (200..300, Some("unconfirmed") | None) => Answer::Stored,
        (200..300, Some(_)) => Answer::Durable,
        // There is none, or it is being deleted, or there is one already.
        (404 | 409, _) => Answer::Refused,
        _ => Answer::Unknown,
    }
}
