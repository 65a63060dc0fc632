//! Output of a pod.

use api_types::LogItemView;
use bytes::Bytes;
use model::stream::log_line::LineSplitter;
use reqwest::{Method, Response};

use crate::error::ClientError;
use crate::http::Client;

/// An open log.
pub struct LogStream {
    client: Client,
    response: Response,
    operation: String,
}

/// Selects logs of several pods.
#[derive(Debug, Clone, Default)]
pub struct PodLogQuery {
    /// Pods, by uuid or name.
    pub pods: Vec<String>,
    /// Services whose pods are read.
    pub services: Vec<String>,
    /// App whose pods are read.
    pub app: Option<String>,
    /// Label selector for services.
    pub label: Option<String>,
    /// Container; `None` for all.
    pub container: Option<String>,
    /// Number of last lines to begin with.
    pub tail: Option<usize>,
    /// True to continue with new lines.
    pub follow: bool,
    /// Only lines after this time, or of this last duration.
    pub since: Option<String>,
    /// Only lines before this time.
    pub until: Option<String>,
    /// Only lines that contain this text.
    pub grep: Option<String>,
    /// True to read the previous containers.
    pub previous: bool,
}

impl PodLogQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let list = |items: &[String]| (!items.is_empty()).then(|| items.join(","));
        let fields = [
            ("pod", list(&self.pods)),
            ("service", list(&self.services)),
            ("app", self.app.clone()),
            ("label", self.label.clone()),
            ("container", self.container.clone()),
            ("tail", self.tail.map(|tail| tail.to_string())),
            ("follow", self.follow.then(|| "true".to_owned())),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("grep", self.grep.clone()),
            ("previous", self.previous.then(|| "true".to_owned())),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Lines of several pods as they arrive.
pub struct ItemStream {
    log: LogStream,
    splitter: LineSplitter,
}

impl ItemStream {
    /// Returns the next lines and marks, or `None` at the end.
    pub async fn next_items(&mut self) -> Result<Option<Vec<LogItemView>>, ClientError> {
        let Some(bytes) = self.log.next().await? else { return Ok(None) };
        let lines = self.splitter.add(&bytes);
        Ok(Some(lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect()))
    }
}

/// Selects the log of one pod.
pub struct LogQuery {
    /// Number of last lines to begin with.
    pub tail: usize,
    /// True to continue with new lines.
    pub follow: bool,
    /// Container of a pod with several; `None` for the first one.
    pub container: Option<String>,
}

impl Client {
    /// Opens a pod's log.
    pub async fn logs(&self, id: &str, wanted: &LogQuery) -> Result<LogStream, ClientError> {
        let operation = format!("reading the log of pod {id}");
        let mut query = vec![("tail", wanted.tail.to_string()), ("follow", wanted.follow.to_string())];
        query.extend(wanted.container.iter().map(|name| ("container", name.clone())));
        let request = self.request(Method::GET, &["pod", id, "log"], &query);
        let response = self.send(&operation, request).await?;
        Ok(LogStream { client: self.clone(), response, operation })
    }
}

impl Client {
    /// Opens the logs of several pods, merged by time.
    pub async fn lines(&self, wanted: &PodLogQuery) -> Result<ItemStream, ClientError> {
        let operation = "reading logs".to_owned();
        let request = self.request(Method::GET, &["log"], &wanted.pairs());
        let response = self.send(&operation, request).await?;
        let log = LogStream { client: self.clone(), response, operation };
        Ok(ItemStream { log, splitter: LineSplitter::default() })
    }
}

impl LogStream {
    /// Returns the next bytes, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.response.chunk().await.map_err(|e| self.client.request_failed(&self.operation, &e, false))
    }
}
