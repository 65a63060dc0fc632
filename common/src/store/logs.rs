//! Logs on demand. No process calls another: the api leaves a request for the worker, the worker writes lines to a
//! stream that lives for as long as somebody reads it.

use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};
use serde::{Deserialize, Serialize};

use super::keys::channel;
use super::reply::{corrupt, list, read};
use super::{Store, StoreError, keys};
use crate::ids::{NodeName, PodId};

/// How long a request or its answer outlives the last sign of interest, in seconds.
const KEEP: u64 = 30;
/// How many chunks of an answer are kept for a reader that is slow.
const CHUNKS: usize = 2000;

/// What somebody wants to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Names the stream the answer goes to.
    pub id: String,
    /// Whose output.
    pub pod: PodId,
    /// How many of the last lines.
    pub tail: usize,
    /// Whether to go on with what comes after.
    pub follow: bool,
}

/// A piece of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChunk {
    /// Output, as the container wrote it.
    Output(Bytes),
    /// There is no more; empty when all is well, else what went wrong.
    End(String),
}

impl Store {
    /// Asks a worker for output.
    pub async fn request_logs(&self, node: &NodeName, request: &LogRequest) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        let key = keys::log_requests(node);
        pipe.cmd("SET").arg(format!("{}:want", keys::log(&request.id))).arg(1).arg("EX").arg(KEEP).ignore();
        pipe.cmd("RPUSH").arg(&key).arg(super::services::to_json(request)).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(KEEP).ignore();
        pipe.cmd("PUBLISH").arg(channel::worker(node)).arg("logs").ignore();
        self.link.pipeline(&pipe).await
    }

    /// Takes the requests that wait for a worker. Lost with the worker: the reader asks again.
    pub async fn take_log_requests(&self, node: &NodeName) -> Result<Vec<LogRequest>, StoreError> {
        let mut pop = cmd("LPOP");
        pop.arg(keys::log_requests(node)).arg(100);
        let found: Option<Vec<Vec<u8>>> = self.link.query(&pop).await?;
        let requests = found.unwrap_or_default();
        Ok(requests.iter().filter_map(|json| serde_json::from_slice(json).ok()).collect())
    }

    /// Writes a piece of the answer; false when nobody reads any more.
    pub async fn write_log(&self, id: &str, chunk: &LogChunk) -> Result<bool, StoreError> {
        let key = keys::log(id);
        let (field, value): (&str, &[u8]) = match chunk {
            LogChunk::Output(bytes) => ("output", bytes),
            LogChunk::End(why) => ("end", why.as_bytes()),
        };
        let mut pipe = redis::pipe();
        pipe.cmd("XADD").arg(&key).arg("MAXLEN").arg("~").arg(CHUNKS).arg("*").arg(field).arg(value).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(KEEP).ignore();
        pipe.cmd("EXISTS").arg(format!("{key}:want"));
        let (wanted,): (bool,) = self.link.pipeline(&pipe).await?;
        Ok(wanted)
    }

    /// Whether somebody still reads. For a worker whose container has been quiet for a while.
    pub async fn log_is_wanted(&self, id: &str) -> Result<bool, StoreError> {
        self.link.query(cmd("EXISTS").arg(format!("{}:want", keys::log(id)))).await
    }

    /// Reads on after `last` (`"0"` at first), and keeps the answer wanted. Gives the pieces and the new `last`.
    /// Does not wait longer than a blink: call again, with a pause when nothing came.
    pub async fn read_log(&self, id: &str, last: &str) -> Result<(Vec<LogChunk>, String), StoreError> {
        let key = keys::log(id);
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(format!("{key}:want")).arg(1).arg("EX").arg(KEEP).ignore();
        pipe.cmd("XRANGE").arg(&key).arg(format!("({last}")).arg("+").arg("COUNT").arg(100);
        let (entries,): (Value,) = self.link.pipeline(&pipe).await?;
        let mut chunks = Vec::new();
        let mut last = last.to_owned();
        for entry in list("reading logs", entries)? {
            let (at, fields): (String, Vec<(String, Vec<u8>)>) = read("reading logs", entry)?;
            last = at;
            let (field, value) =
                fields.into_iter().next().ok_or_else(|| corrupt("reading logs", "empty entry"))?;
            chunks.push(match field.as_str() {
                "end" => LogChunk::End(String::from_utf8_lossy(&value).into_owned()),
                _ => LogChunk::Output(value.into()),
            });
        }
        Ok((chunks, last))
    }

    /// Ends a reading: the worker stops at its next piece.
    pub async fn end_log(&self, id: &str) -> Result<(), StoreError> {
        let key = keys::log(id);
        self.link.query(cmd("DEL").arg(format!("{key}:want")).arg(&key)).await
    }

    /// How often a reader should look when nothing came.
    pub const LOG_POLL: Duration = Duration::from_millis(100);
}
