//! Sends requests to the API and turns every failure into a [`ClientError`].

use std::error::Error;
use std::time::Duration;

use api_types::Problem;
use model::value::secret::Secret;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;

use crate::endpoint::ApiUrl;
use crate::error::ClientError;
use crate::shorten::shorten;

/// A listening process accepts at once; a missing host never does.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Slightly longer than the API's own limit, so that its timeout problem arrives.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);
const MAX_SHOWN_BODY: usize = 200;

/// A client of one API.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    endpoint: ApiUrl,
    token: Option<Secret>,
    /// True if the API may start a service partially.
    allow_partial: bool,
}

impl Client {
    /// Creates a client for the API at `api`. Sends nothing.
    ///
    /// # Errors
    /// `InvalidAddress` or `InvalidToken`.
    pub fn new(api: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        let endpoint = ApiUrl::parse(api)?;
        if let Some(token) = &token
            && reqwest::header::HeaderValue::from_str(token.expose()).is_err()
        {
            return Err(ClientError::InvalidToken("an HTTP header cannot contain its characters".to_owned()));
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("kubeleet/", env!("CARGO_PKG_VERSION")))
            // The token is for the given address only.
            .redirect(reqwest::redirect::Policy::none());
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| ClientError::RequestFailed {
            operation: "preparing the HTTP client".to_owned(),
            address: endpoint.to_string(),
            cause: root_cause(&e),
            may_have_changed: false,
        })?;
        Ok(Self { http, endpoint, token, allow_partial: false })
    }

    /// Returns this client; with `allow_partial`, its writes may start a service partially.
    pub fn allowing_partial(&self, allow_partial: bool) -> Self {
        Self { allow_partial, ..self.clone() }
    }

    pub(crate) fn write_request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.request(method, path, self.partial_query().as_slice())
    }

    pub(crate) fn partial_query(&self) -> Option<(&'static str, String)> {
        self.allow_partial.then(|| ("allow_partial", "true".to_owned()))
    }

    pub(crate) fn request(&self, method: Method, path: &[&str], query: &[(&str, String)]) -> RequestBuilder {
        let request = self.http.request(method, self.endpoint.url(path, query));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }

    /// Sends a request and returns the decoded JSON body. Every error begins with `operation`.
    pub(crate) async fn send_for_json<T: DeserializeOwned>(
        &self,
        operation: &str,
        request: RequestBuilder,
    ) -> Result<T, ClientError> {
        let is_write = is_write(&request);
        let response = self.send(operation, request.timeout(RESPONSE_TIMEOUT)).await?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|e| self.request_failed(operation, &e, is_write))?;
        serde_json::from_slice(&body).map_err(|_| self.not_kubeleet(operation, status, &body))
    }

    pub(crate) async fn send_for_success(
        &self,
        operation: &str,
        request: RequestBuilder,
    ) -> Result<(), ClientError> {
        self.send(operation, request.timeout(RESPONSE_TIMEOUT)).await.map(drop)
    }

    /// Sends a request and returns the response after its headers. Any status but 2xx and 101 is an error.
    pub(crate) async fn send(
        &self,
        operation: &str,
        request: RequestBuilder,
    ) -> Result<Response, ClientError> {
        let is_write = is_write(&request);
        let response = request.send().await.map_err(|e| {
            if e.is_connect() {
                ClientError::Unreachable { address: self.endpoint.to_string(), cause: root_cause(&e) }
            } else {
                self.request_failed(operation, &e, is_write)
            }
        })?;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|e| self.request_failed(operation, &e, is_write))?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => {
                Err(ClientError::Problem { operation: operation.to_owned(), problem: Box::new(problem) })
            }
            Err(_) => Err(self.not_kubeleet(operation, status.as_u16(), &body)),
        }
    }

    pub(crate) fn request_failed(
        &self,
        operation: &str,
        error: &reqwest::Error,
        is_write: bool,
    ) -> ClientError {
        let cause = if error.is_timeout() { "timed out".to_owned() } else { root_cause(error) };
        ClientError::RequestFailed {
            operation: operation.to_owned(),
            address: self.endpoint.to_string(),
            cause,
            may_have_changed: is_write,
        }
    }

    pub(crate) fn stream_ended(&self, operation: &str, cause: String) -> ClientError {
        ClientError::RequestFailed {
            operation: operation.to_owned(),
            address: self.endpoint.to_string(),
            cause,
            may_have_changed: false,
        }
    }

    pub(crate) fn not_kubeleet(&self, operation: &str, status: u16, body: &[u8]) -> ClientError {
        let text = shorten(&String::from_utf8_lossy(body), MAX_SHOWN_BODY);
        ClientError::NotKubeleet {
            operation: operation.to_owned(),
            address: self.endpoint.to_string(),
            status,
            body: if text.is_empty() { "an empty body".to_owned() } else { format!("body: {text}") },
        }
    }
}

/// Returns true if the request may change something: without a response its result is unknown.
fn is_write(request: &RequestBuilder) -> bool {
    let built = request.try_clone().and_then(|request| request.build().ok());
    built.is_none_or(|request| request.method() != Method::GET)
}

/// Returns the innermost message, `Connection refused` rather than `error sending request`.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    daemon::system_error(cause)
}
