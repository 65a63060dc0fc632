//! One request to the API.

use std::time::Duration;

use api_types::{List, Problem};
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{Client, root_cause};

/// Slightly longer than the API's own limit, so that its timeout problem arrives.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);

/// Errors begin with the operation.
#[derive(Clone)]
pub struct ApiCall<'a> {
    client: &'a Client,
    operation: String,
    method: Method,
    url: Url,
    headers: Vec<(HeaderName, String)>,
    body: Vec<u8>,
}

pub struct ByteStream {
    client: Client,
    operation: String,
    response: Response,
}

impl Client {
    /// `operation` says in errors what has failed: `reading node worker1`.
    pub fn call(&self, method: Method, path: &[&str], operation: impl Into<String>) -> ApiCall<'_> {
        let (operation, url) = (operation.into(), self.endpoint.url(path, &[]));
        ApiCall { client: self, operation, method, url, headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn write(&self, method: Method, path: &[&str], operation: impl Into<String>) -> ApiCall<'_> {
        self.call(method, path, operation).query("allow_partial", self.allow_partial.then_some(true))
    }
}

impl ApiCall<'_> {
    /// Adds nothing for `None`.
    pub fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.url.query_pairs_mut().append_pair(name, &value.to_string());
        }
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header(CONTENT_TYPE, content_type)
    }

    pub fn json(self, input: &impl Serialize) -> Self {
        self.body("application/json", serde_json::to_vec(input).expect("types of the API always serialize"))
    }

    pub async fn done(mut self) -> Result<(), ClientError> {
        self.send(Some(RESPONSE_TIMEOUT)).await.map(drop)
    }

    pub async fn view<T: DeserializeOwned>(mut self) -> Result<T, ClientError> {
        let response = self.send(Some(RESPONSE_TIMEOUT)).await?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|error| self.failed(&error))?;
        serde_json::from_slice(&body).map_err(|_| self.client.not_kubeleet(&self.operation, status, &body))
    }

    pub async fn views<T: DeserializeOwned>(self) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page: List<T> = self.clone().query("after", after).view().await?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    pub async fn bytes(mut self) -> Result<ByteStream, ClientError> {
        let response = self.send(None).await?;
        Ok(ByteStream { client: self.client.clone(), operation: self.operation, response })
    }

    pub(crate) async fn send(&mut self, limit: Option<Duration>) -> Result<Response, ClientError> {
        let client = self.client;
        let mut http = client.http.request(self.method.clone(), self.url.clone());
        if let Some(token) = &client.token {
            http = http.bearer_auth(token.expose());
        }
        for (name, value) in &self.headers {
            http = http.header(name, value);
        }
        if !self.body.is_empty() {
            http = http.body(std::mem::take(&mut self.body));
        }
        if let Some(limit) = limit {
            http = http.timeout(limit);
        }
        let response = http.send().await.map_err(|error| match error.is_connect() {
            true => {
                ClientError::Unreachable { address: client.endpoint.to_string(), cause: root_cause(&error) }
            }
            false => self.failed(&error),
        })?;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|error| self.failed(&error))?;
        Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => {
                ClientError::Problem { operation: self.operation.clone(), problem: Box::new(problem) }
            }
            Err(_) => client.not_kubeleet(&self.operation, status.as_u16(), &body),
        })
    }

    fn failed(&self, error: &reqwest::Error) -> ClientError {
        // Without a response the result of a write is unknown.
        self.client.request_failed(&self.operation, error, self.method != Method::GET)
    }
}

impl ByteStream {
    /// After a broken connection the body is incomplete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| self.client.request_failed(&self.operation, &error, false))
    }
}
