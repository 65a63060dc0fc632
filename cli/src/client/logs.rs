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

impl Client {
    /// Opens a pod's log: its last `tail` lines and, with `follow`, what is written after them.
    pub(crate) async fn logs(&self, id: &str, tail: usize, follow: bool) -> Result<LogStream, ClientError> {
        let operation = format!("reading the log of pod {id}");
        let query = [("tail", tail.to_string()), ("follow", follow.to_string())];
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
