//! The output of one pod, and merged logs of many.

use api_types::LogItemView;
use model::stream::log_line::LineSplitter;
use reqwest::Method;

use crate::call::{ApiCall, ByteStream};
use crate::error::ClientError;
use crate::http::Client;

#[derive(Debug, Clone, Default)]
pub struct PodLogQuery {
    /// By uuid or name.
    pub pods: Vec<String>,
    pub services: Vec<String>,
    pub app: Option<String>,
    pub label: Option<String>,
    /// `None` for all.
    pub container: Option<String>,
    pub tail: Option<usize>,
    pub follow: bool,
    /// A time, or a duration that ends now.
    pub since: Option<String>,
    pub until: Option<String>,
    pub grep: Option<String>,
    pub previous: bool,
}

impl PodLogQuery {
    fn select<'a>(&self, lines: ApiCall<'a>) -> ApiCall<'a> {
        let list = |items: &[String]| (!items.is_empty()).then(|| items.join(","));
        let lines = lines.query("pod", list(&self.pods)).query("service", list(&self.services));
        let lines = lines.query("app", self.app.as_ref()).query("label", self.label.as_ref());
        let lines = lines.query("container", self.container.as_ref()).query("tail", self.tail);
        let lines = lines.query("follow", self.follow.then_some(true)).query("since", self.since.as_ref());
        let lines = lines.query("until", self.until.as_ref()).query("grep", self.grep.as_ref());
        lines.query("previous", self.previous.then_some(true))
    }
}

pub struct ItemStream {
    log: ByteStream,
    splitter: LineSplitter,
}

impl ItemStream {
    pub async fn next_items(&mut self) -> Result<Option<Vec<LogItemView>>, ClientError> {
        let Some(bytes) = self.log.next().await? else { return Ok(None) };
        let lines = self.splitter.add(&bytes);
        Ok(Some(lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect()))
    }
}

pub struct LogQuery {
    pub tail: usize,
    pub follow: bool,
    /// `None` for the first one.
    pub container: Option<String>,
}

impl Client {
    pub async fn logs(&self, id: &str, wanted: &LogQuery) -> Result<ByteStream, ClientError> {
        let call = self.call(Method::GET, &["pod", id, "log"], format!("reading the log of pod {id}"));
        let call = call.query("tail", Some(wanted.tail)).query("follow", Some(wanted.follow));
        call.query("container", wanted.container.as_ref()).bytes().await
    }

    pub async fn lines(&self, wanted: &PodLogQuery) -> Result<ItemStream, ClientError> {
        let log = wanted.select(self.call(Method::GET, &["log"], "reading logs")).bytes().await?;
        Ok(ItemStream { log, splitter: LineSplitter::default() })
    }
}
