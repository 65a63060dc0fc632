//! Tests of the router against a real Redis, without sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apps;
mod bodies;
mod broken;
mod capacity;
mod events;
mod failures;
mod growth;
mod logs;
mod metrics;
mod nodes;
mod openapi;
mod outages;
mod plans;
mod pods;
mod queues;
mod server;
mod services;
mod shapes;
mod values;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use daemon::config::Config;
use http_body_util::BodyExt;
use serde_json::Value;
use store::{LinkOptions, Store};
use testkit::{Redis, eventually, fixtures};
use tower::ServiceExt;

use crate::router::router;
use crate::state::AppState;

const LIMIT: Duration = Duration::from_secs(20);

struct Api {
    redis: Redis,
    app: AppState,
    router: Router,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Self { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    #[track_caller]
    fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

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

fn config(redis_url: &str, settings: &[(&str, &str)]) -> Arc<Config> {
    let own = [("KUBELEET_REDIS_URL", redis_url), ("KUBELEET_LISTEN", "127.0.0.1:0")];
    // The last of two equal settings counts.
    Arc::new(fixtures::config(&[&own, settings].concat()))
}

fn app(redis_url: &str, settings: &[(&str, &str)]) -> AppState {
    let config = config(redis_url, settings);
    let options =
        LinkOptions { response_timeout: Duration::from_secs(2), connect_timeout: Duration::from_millis(500) };
    let store = Store::new(config.redis.clone(), options);
    AppState::new(config, store)
}

impl Api {
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    fn start_with(settings: &[(&str, &str)]) -> Option<Self> {
        let redis = testkit::require::has_redis().then(Redis::blocking_start)?;
        let app = app(&redis.url(), settings);
        let router = router(app.clone());
        Some(Self { redis, app, router })
    }

    fn twin(&self) -> (AppState, Router) {
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
        Answer::read(response).await
    };
    tokio::time::timeout(LIMIT, whole).await.expect("an answer in time")
}
