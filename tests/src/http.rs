//! The API as curl sees it.

use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;

/// One API process.
#[derive(Debug, Clone)]
pub struct Http {
    base: String,
    client: Client,
    token: Option<String>,
}

impl Http {
    /// The API at this address.
    pub fn new(base: &str) -> Self {
        let client = Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(2))
            .read_timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Self { base: base.to_owned(), client, token: None }
    }

    /// The same with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// One request, answered or not.
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

    /// One request with its answer; not for streams.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let answer = self.try_send(method.clone(), path, body).await;
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        read(answer).await
    }

    /// GET.
    ///
    /// # Panics
    /// Unless it is answered with success.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert!(status.is_success(), "GET {path}: {status}: {body}");
        body
    }

    /// POST.
    ///
    /// # Panics
    /// Unless it is answered with success.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(Method::POST, path, Some(body)).await;
        assert!(status.is_success(), "POST {path}: {status}: {answer}");
        answer
    }

    /// A stream, from its beginning; read on with [`Response::chunk`].
    ///
    /// # Panics
    /// Unless it is answered with success.
    pub async fn stream(&self, path: &str) -> Response {
        let answer = self.try_send(Method::GET, path, None).await.unwrap();
        assert!(answer.status().is_success(), "GET {path}: {}", answer.status());
        answer
    }
}

async fn read(answer: Response) -> (StatusCode, Value) {
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, body)
}

impl Http {
    /// Waits until a service has just so many pods running and none in any other phase.
    pub async fn runs(&self, within: Duration, service: &str, pods: u64) {
        crate::eventually(within, &format!("{service} runs {pods} pods"), || async {
            let (status, body) = self.send(Method::GET, &format!("/service/{service}"), None).await;
            let seen = &body["status"];
            let other = ["pending", "assigned", "stopping"].iter().any(|phase| seen[phase] != 0);
            crate::wait::that(seen["running"] == pods && !other, || format!("{status}: {seen}"))
        })
        .await;
    }

    /// Waits until just so many nodes are ready, and schedulers know it: their view of the nodes may be 200 ms old.
    pub async fn nodes_ready(&self, nodes: usize) {
        crate::eventually(crate::wait::LIMIT, "the nodes are ready", || async {
            let found = self.get("/node").await;
            let ready =
                found["items"].as_array().unwrap().iter().filter(|node| node["ready"] == true).count();
            crate::wait::that(ready == nodes, || found.to_string())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }

    /// The pods of a service, or with another query.
    pub async fn pods(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/pod?{query}")).await["items"].as_array().cloned().unwrap_or_default()
    }
}
