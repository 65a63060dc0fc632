//! Talking to the API: one method per route, typed answers, typed errors.

mod calls;
mod endpoint;
mod error;
mod events;
#[cfg(test)]
pub(crate) mod fake;
mod logs;
#[cfg(test)]
pub(crate) mod samples;
mod sse;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::time::Duration;

use api::dto::Problem;
use common::config::Secret;
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;

pub(crate) use calls::PodFilter;
use endpoint::Endpoint;
pub(crate) use error::ClientError;
pub(crate) use events::{EventStream, From as EventsFrom};

/// A process that listens accepts at once; a host that does not exist never does.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A little more than the API gives itself, so that its own words arrive.
const ANSWER_WITHIN: Duration = Duration::from_secs(35);

/// A connection to one API.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    endpoint: Endpoint,
    token: Option<Secret>,
}

impl Client {
    /// Prepares it; nothing is sent yet.
    pub(crate) fn new(api: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        let endpoint = Endpoint::parse(api)?;
        if let Some(token) = &token
            && reqwest::header::HeaderValue::from_str(token.expose()).is_err()
        {
            return Err(ClientError::BadToken("it has characters that can not be sent".to_owned()));
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .user_agent(concat!("kubeleet/", env!("CARGO_PKG_VERSION")))
            // The token goes to the address that was given, and nowhere else.
            .redirect(reqwest::redirect::Policy::none());
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| ClientError::Broken {
            what: "preparing HTTP".to_owned(),
            address: endpoint.to_string(),
            why: root_cause(&e),
            wrote: false,
        })?;
        Ok(Self { http, endpoint, token })
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, String)]) -> RequestBuilder {
        let request = self.http.request(method, self.endpoint.url(path, query));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }

    /// Sends a request whose answer comes as a whole.
    async fn json<T: DeserializeOwned>(&self, what: &str, request: RequestBuilder) -> Result<T, ClientError> {
        let wrote = is_write(&request);
        let answer = self.send(what, request.timeout(ANSWER_WITHIN)).await?;
        let status = answer.status().as_u16();
        let body = answer.bytes().await.map_err(|e| self.broken(what, &e, wrote))?;
        serde_json::from_slice(&body).map_err(|_| self.stranger(what, status, &body))
    }

    /// Sends a request whose answer does not matter beyond its success.
    async fn done(&self, what: &str, request: RequestBuilder) -> Result<(), ClientError> {
        self.send(what, request.timeout(ANSWER_WITHIN)).await.map(drop)
    }

    /// Sends a request and gives the answer when its head is there; everything but success is an error.
    async fn send(&self, what: &str, request: RequestBuilder) -> Result<Response, ClientError> {
        let wrote = is_write(&request);
        let answer = request.send().await.map_err(|e| {
            if e.is_connect() {
                ClientError::Unreachable { address: self.endpoint.to_string(), why: root_cause(&e) }
            } else {
                self.broken(what, &e, wrote)
            }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().await.map_err(|e| self.broken(what, &e, wrote))?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(ClientError::Problem { what: what.to_owned(), problem: Box::new(problem) }),
            Err(_) => Err(self.stranger(what, status.as_u16(), &body)),
        }
    }

    fn broken(&self, what: &str, error: &reqwest::Error, wrote: bool) -> ClientError {
        let why = if error.is_timeout() { "no answer in time".to_owned() } else { root_cause(error) };
        ClientError::Broken { what: what.to_owned(), address: self.endpoint.to_string(), why, wrote }
    }

    fn stranger(&self, what: &str, status: u16, body: &[u8]) -> ClientError {
        let text = crate::output::words::shorten(&String::from_utf8_lossy(body), 200);
        ClientError::Stranger { what: what.to_owned(), address: self.endpoint.to_string(), status, text }
    }
}

/// Whether a request may change something. After a lost answer nobody knows whether it did.
fn is_write(request: &RequestBuilder) -> bool {
    let built = request.try_clone().and_then(|request| request.build().ok());
    built.is_none_or(|request| request.method() != Method::GET)
}

/// The innermost words: `Connection refused (os error 111)` rather than `error sending request`.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
