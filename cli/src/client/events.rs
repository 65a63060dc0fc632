//! The stream of what happens, as it happens.

use std::time::Duration;

use common::event::ClusterEvent;
use reqwest::{Method, Response};

use super::sse::SseParser;
use super::{Client, ClientError};

/// The API sends at least a comment far more often; after so long the connection is dead, whatever TCP believes.
const SILENCE: Duration = Duration::from_secs(60);

/// Where a stream of events begins.
#[derive(Debug, Clone)]
pub(crate) enum From {
    /// With the last so many.
    Tail(usize),
    /// After this one.
    After(String),
}

/// An open stream of events.
pub(crate) struct EventStream {
    client: Client,
    answer: Response,
    parser: SseParser,
    ready: std::collections::VecDeque<ClusterEvent>,
}

const WHAT: &str = "reading events";

impl Client {
    /// Opens the stream of events.
    pub(crate) async fn watch(&self, from: &From) -> Result<EventStream, ClientError> {
        let request = match from {
            From::Tail(count) => self.request(Method::GET, &["event"], &[("tail", count.to_string())]),
            From::After(id) => self.request(Method::GET, &["event"], &[]).header("last-event-id", id),
        };
        let answer = self.send(WHAT, request.header("accept", "text/event-stream")).await?;
        Ok(EventStream {
            client: self.clone(),
            answer,
            parser: SseParser::default(),
            ready: Default::default(),
        })
    }
}

impl EventStream {
    /// The next event. After an error open another stream, after the last event that came.
    pub(crate) async fn next(&mut self) -> Result<ClusterEvent, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let piece = match tokio::time::timeout(SILENCE, self.answer.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Err(self.ended("the API ended the stream")),
                Ok(Err(error)) => return Err(self.client.broken(WHAT, &error, false)),
                Err(_) => return Err(self.ended("the stream is silent")),
            };
            let frames = self.parser.push(&piece).map_err(|e| self.ended(&e.to_string()))?;
            // An event of a kind that this version does not know is left out, not fatal.
            self.ready.extend(frames.iter().filter_map(|frame| serde_json::from_str(&frame.data).ok()));
        }
    }

    fn ended(&self, why: &str) -> ClientError {
        let address = self.client.endpoint.to_string();
        ClientError::Broken { what: WHAT.to_owned(), address, why: why.to_owned(), wrote: false }
    }
}
