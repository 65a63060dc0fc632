//! The router against a real Redis: requests go in without a socket, answers come out whole.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod away;
mod bodies;
mod events;
mod logs;
mod nodes;
mod pods;
mod queues;
mod redis;
mod server;
mod services;
mod shapes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use common::config::{Config, Sources};
use common::store::{LinkOptions, Store};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::router::router;
use crate::state::App;
use redis::Redis;

/// Nothing here takes longer unless it is broken.
const LIMIT: Duration = Duration::from_secs(20);

/// An API over a Redis of its own.
struct Api {
    redis: Redis,
    app: App,
    router: Router,
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Checks the status and gives the JSON.
    #[track_caller]
    fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Checks that this is a whole problem of this type, and gives it.
    #[track_caller]
    fn problem(&self, status: u16, slug: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["type"], format!("/problems/{slug}"), "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        for field in ["title", "detail", "instance", "request_id"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {problem}");
        }
        assert_eq!(problem["request_id"], self.header("x-request-id"));
        problem
    }
}

/// A configuration for this Redis, with further settings.
fn config(redis_url: &str, settings: &[(&str, &str)]) -> Arc<Config> {
    let mut flags: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    flags.insert("KUBELEET_REDIS_URL".into(), redis_url.into());
    flags.entry("KUBELEET_LISTEN".into()).or_insert("127.0.0.1:0".into());
    let sources = Sources {
        flags,
        environment: &|_| None,
        file: BTreeMap::new(),
        read_file: &|_| Err("no files here".into()),
        host_name: "here".into(),
    };
    Arc::new(sources.config().unwrap())
}

fn app(redis_url: &str, settings: &[(&str, &str)]) -> App {
    let config = config(redis_url, settings);
    let options =
        LinkOptions { response_timeout: Duration::from_secs(2), connect_timeout: Duration::from_millis(500) };
    let store = Store::new(config.redis.clone(), options);
    App::new(config, store)
}

impl Api {
    /// None without a redis-server, which has been said loudly.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    fn start_with(settings: &[(&str, &str)]) -> Option<Self> {
        let redis = Redis::start()?;
        let app = app(&redis.url(), settings);
        let router = router(app.clone());
        Some(Self { redis, app, router })
    }

    /// Another API process over the same Redis.
    fn twin(&self) -> (App, Router) {
        let app = app(&self.redis.url(), &[]);
        let router = router(app.clone());
        (app, router)
    }

    async fn get(&self, path: &str) -> Answer {
        call(&self.router, "GET", path, &[], "").await
    }

    async fn delete(&self, path: &str) -> Answer {
        call(&self.router, "DELETE", path, &[], "").await
    }

    async fn post(&self, path: &str, json: &str) -> Answer {
        call(&self.router, "POST", path, &[], json).await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        call(&self.router, method, path, headers, body).await
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

async fn call(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    answer(router, request(method, path, headers, body.to_owned())).await
}

async fn answer(router: &Router, request: Request<Body>) -> Answer {
    let whole = async {
        let response = router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text }
    };
    tokio::time::timeout(LIMIT, whole).await.expect("an answer in time")
}

/// Asks again until the answer is as wanted.
async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let deadline = Instant::now() + LIMIT;
    while !ask().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
