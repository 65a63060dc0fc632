//! A pod's output.

use bytes::Bytes;
use reqwest::{Method, Response};

use super::error::ClientError;
use super::http::Client;

/// An open log.
pub(crate) struct LogStream {
    client: Client,
    response: Response,
    operation: String,
}

/// What to read of a log.
pub(crate) struct LogQuery {
    /// The number of last lines to begin with.
    pub(crate) tail: usize,
    /// Whether to go on with what is written after them.
    pub(crate) follow: bool,
    /// The container of a pod with several; `None` for the first one.
    pub(crate) container: Option<String>,
}

impl Client {
    /// Opens a pod's log.
    pub(crate) async fn logs(&self, id: &str, wanted: &LogQuery) -> Result<LogStream, ClientError> {
        let operation = format!("reading the log of pod {id}");
        let mut query = vec![("tail", wanted.tail.to_string()), ("follow", wanted.follow.to_string())];
        query.extend(wanted.container.iter().map(|name| ("container", name.clone())));
        let request = self.request(Method::GET, &["pod", id, "log"], &query);
        let response = self.send(&operation, request).await?;
        Ok(LogStream { client: self.clone(), response, operation })
    }
}

impl LogStream {
    /// Returns the next bytes, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.response.chunk().await.map_err(|e| self.client.request_failed(&self.operation, &e, false))
    }
}
