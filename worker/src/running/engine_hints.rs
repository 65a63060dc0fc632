//! The engine's hints that containers have changed. Subscribes again whenever the stream ends.

use std::time::Duration;

use engine::Hint;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use model::ids::PodId;
use tokio::time::Instant;

use crate::running::table::PodTable;
use crate::worker::Worker;

const RESUBSCRIBE_INTERVAL: Duration = Duration::from_secs(1);
/// After a failed attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct EngineHints {
    stream: Option<BoxStream<'static, Hint>>,
    next_attempt: Option<Instant>,
    is_failing: bool,
}

impl EngineHints {
    pub(crate) async fn open(&mut self, worker: &Worker) {
        if self.stream.is_some() || self.next_attempt.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.next_attempt = Some(Instant::now() + RESUBSCRIBE_INTERVAL);
        match worker.runtime.hints(&worker.node).await {
            Ok(stream) => {
                self.stream = Some(stream);
                self.is_failing = false;
            }
            Err(error) => {
                self.next_attempt = Some(Instant::now() + RETRY_INTERVAL);
                if !self.is_failing {
                    self.is_failing = true;
                    let interval = worker.timings.relist_interval;
                    tracing::warn!(
                        node = %worker.node, %error,
                        "the engine sends no events; listing containers every {interval:?} instead"
                    );
                }
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// The pod and container to inspect; `None` means that containers must be listed. Ignores our own starts
    /// and stops: listing after each would keep the engine from other starts.
    ///
    /// # Cancel safety
    /// At most irrelevant hints are lost.
    pub(crate) async fn next(&mut self, table: &PodTable) -> Option<(PodId, String)> {
        match &mut self.stream {
            Some(stream) => {
                while let Some(hint) = stream.next().await {
                    let Hint { pod, handle, is_start } = hint;
                    match (pod, handle) {
                        // A restarted container may have ended again.
                        (Some(pod), Some(handle)) if !is_start && table.contains(&pod) => {
                            return Some((pod, handle));
                        }
                        (pod, _) if pod.as_ref().is_none_or(|pod| table.is_news(pod, is_start)) => {
                            return None;
                        }
                        _ => {}
                    }
                }
                self.stream = None;
            }
            None => match self.next_attempt {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            },
        }
        None
    }
}
