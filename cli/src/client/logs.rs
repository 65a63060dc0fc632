//! A pod's output, as it comes.

use bytes::Bytes;
use reqwest::{Method, Response};

use super::{Client, ClientError};

/// An open log.
pub(crate) struct LogStream {
    client: Client,
    answer: Response,
    what: String,
}

impl Client {
    /// Opens a pod's log: its last `tail` lines, and what comes after them when it is followed.
    pub(crate) async fn logs(&self, id: &str, tail: usize, follow: bool) -> Result<LogStream, ClientError> {
        let what = format!("reading the log of pod {id}");
        let query = [("tail", tail.to_string()), ("follow", follow.to_string())];
        let answer = self.send(&what, self.request(Method::GET, &["pod", id, "log"], &query)).await?;
        Ok(LogStream { client: self.clone(), answer, what })
    }
}

impl LogStream {
    /// The next piece; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.answer.chunk().await.map_err(|e| self.client.broken(&self.what, &e, false))
    }
}
