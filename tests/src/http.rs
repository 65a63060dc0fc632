//! A client of the HTTP API.

use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;
use testkit::eventually::{check, eventually_within};

use crate::LIMIT;

#[derive(Debug, Clone)]
pub struct Http {
    base: String,
    client: Client,
    token: Option<String>,
}

impl Http {
    pub fn new(base: &str) -> Self {
        let client = Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(2))
            .read_timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Self { base: base.to_owned(), client, token: None }
    }

    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub fn address(&self) -> String {
        self.base.trim_start_matches("http://").to_owned()
    }

    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> reqwest::Result<Response> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await
    }

    /// Not for streams.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let response = self.try_send(method.clone(), path, body).await;
        let response = response.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        read(response).await
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert!(status.is_success(), "GET {path}: {status}: {body}");
        body
    }

    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, response) = self.send(Method::POST, path, Some(body)).await;
        assert!(status.is_success(), "POST {path}: {status}: {response}");
        response
    }

    pub async fn stream(&self, path: &str) -> Response {
        let response = self.try_send(Method::GET, path, None).await.unwrap();
        assert!(response.status().is_success(), "GET {path}: {}", response.status());
        response
    }
}

async fn read(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, body)
}

impl Http {
    /// Also waits until no pod is in another active phase.
    pub async fn runs(&self, within: Duration, service: &str, pods: u64) {
        eventually_within(within, &format!("{service} runs {pods} pods"), || async {
            let (status, body) = self.send(Method::GET, &format!("/service/{service}"), None).await;
            let seen = &body["status"];
            let other = ["pending", "assigned", "stopping"].iter().any(|phase| seen[phase] != 0);
            check(seen["running"] == pods && !other, || format!("{status}: {seen}"))
        })
        .await;
    }

    /// The schedulers know it up to 200 ms later.
    pub async fn nodes_ready(&self, nodes: usize) {
        eventually_within(LIMIT, "the nodes are ready", || async {
            let found = self.get("/node").await;
            let ready =
                found["items"].as_array().unwrap().iter().filter(|node| node["ready"] == true).count();
            check(ready == nodes, || found.to_string())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }

    pub async fn pods(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/pod?{query}")).await["items"].as_array().cloned().unwrap_or_default()
    }
}
