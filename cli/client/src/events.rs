//! Live event stream of the API.

use std::time::Duration;

use futures_util::stream::{BoxStream, try_unfold};
use futures_util::{StreamExt, TryStreamExt};
use model::event::ClusterEvent;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderName};
use tokio::time::timeout;

use crate::error::ClientError;
use crate::http::Client;
use crate::sse::{SseError, event_data};

/// The API sends keep-alive comments far more often. TCP may not notice a dead connection.
const MAX_SILENCE: Duration = Duration::from_secs(60);

const OPERATION: &str = "reading events";

#[derive(Debug, Clone)]
pub enum EventsFrom {
    Tail(usize),
    After(String),
}

pub struct EventStream {
    client: Client,
    data: BoxStream<'static, Result<String, SseError<ClientError>>>,
}

impl Client {
    pub async fn watch(&self, from: &EventsFrom) -> Result<EventStream, ClientError> {
        let call = self.call(Method::GET, &["event"], OPERATION).header(ACCEPT, "text/event-stream");
        let mut call = match from {
            EventsFrom::Tail(count) => call.query("tail", Some(count)),
            EventsFrom::After(id) => call.header(HeaderName::from_static("last-event-id"), id),
        };
        let response = call.send(None).await?;
        let client = self.clone();
        let body = try_unfold((response, client), |(mut response, client)| async move {
            match timeout(MAX_SILENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => Ok(Some((chunk, (response, client)))),
                Ok(Ok(None)) => Ok(None),
                Ok(Err(error)) => Err(client.request_failed(OPERATION, &error, false)),
                Err(_) => {
                    let cause = format!("the stream was silent for {} s", MAX_SILENCE.as_secs());
                    Err(client.stream_ended(OPERATION, cause))
                }
            }
        });
        Ok(EventStream { client: self.clone(), data: event_data(body).boxed() })
    }
}

impl EventStream {
    /// After an error, open another stream from the last event. Cancel safe.
    pub async fn next(&mut self) -> Result<ClusterEvent, ClientError> {
        loop {
            let data = match self.data.try_next().await {
                Ok(Some(data)) => data,
                Ok(None) => {
                    return Err(self.client.stream_ended(OPERATION, "the API ended the stream".to_owned()));
                }
                Err(SseError::Body(error)) => return Err(error),
                Err(error) => return Err(self.client.stream_ended(OPERATION, error.to_string())),
            };
            if let Ok(event) = serde_json::from_str(&data) {
                return Ok(event);
            }
        }
    }
}
