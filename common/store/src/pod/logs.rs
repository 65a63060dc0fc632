//! Logs on demand. The api leaves a request for the worker, which writes the output to a stream that exists
//! while a client reads it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Value, cmd};
use serde::{Deserialize, Serialize};

use crate::keys::channel;
use crate::reply::{corrupt, list, read};
use crate::service::prepared::PrepareRequest;
use crate::{Store, StoreError, keys};
use model::ids::{ContainerName, NodeName, PodId, ServiceName};
use model::value::registry::StoredLogin;

/// Seconds until a request and its answer expire after the last read.
const EXPIRE_SECONDS: u64 = 30;
const REQUESTS_AT_ONCE: usize = 100;
/// Maximum number of chunks kept for a reader. A worker waits for its reader long before.
const MAX_CHUNKS: usize = 500;

/// A request for the output of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Its id, which also names the answer stream.
    pub id: String,
    /// The pod.
    pub pod: PodId,
    /// The container of a pod with several; the first by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
    /// Number of last lines to begin with.
    pub tail: usize,
    /// True to continue with new output.
    pub follow: bool,
}

/// A request for the lines of all these pods on a worker, merged by time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinesRequest {
    /// Its id, which also names the answer stream.
    pub id: String,
    /// The pods that are on the node.
    #[serde(default)]
    pub pods: Vec<LoggedPod>,
    /// Services whose pods are read, including pods that start while following.
    #[serde(default)]
    pub services: Vec<ServiceName>,
    /// The container of pods with several; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
    /// Number of last lines of each container; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
    /// True to continue with new output.
    #[serde(default)]
    pub follow: bool,
    /// Only lines after this time, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only lines before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Only lines that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
    /// Reads kept lines of removed containers instead of those of present pods.
    #[serde(default)]
    pub previous: bool,
}

/// A pod whose lines are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedPod {
    /// The pod.
    pub id: PodId,
    /// Its name with its index, such as `web-0`.
    pub name: String,
}

/// A request for the garbage on the disk of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GarbageRequest {
    /// Its id, which also names the answer stream.
    pub id: String,
    /// True to delete it. The field distinguishes this request from the others.
    pub collect_garbage: bool,
}

/// A request to check the login for a registry. The password is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginCheckRequest {
    /// Its id, which also names the answer stream.
    pub id: String,
    /// The login. The field distinguishes this request from the others.
    pub check_login: StoredLogin,
}

/// A request of a client to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AnyLogRequest {
    /// The raw output of one pod.
    Output(LogRequest),
    /// Removable data on the disk.
    Garbage(GarbageRequest),
    /// Pulls the images of a specification. Workers of earlier versions ignore it.
    Prepare(PrepareRequest),
    /// Checks a registry login. Workers of earlier versions ignore it.
    LoginCheck(LoginCheckRequest),
    /// Lines of several pods. Workers of earlier versions ignore it and do not answer.
    Lines(LinesRequest),
}

/// A chunk of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChunk {
    /// Output, as the container wrote it.
    Output(Bytes),
    /// The end of the output: empty, or an error message.
    End(String),
}

impl Store {
    /// Leaves a request for the worker of `node`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn request_logs(&self, node: &NodeName, request: &LogRequest) -> Result<(), StoreError> {
        self.leave_request(node, &request.id, crate::json::to_json(request)).await
    }

    /// Leaves a request for lines for the worker of `node`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn request_lines(&self, node: &NodeName, request: &LinesRequest) -> Result<(), StoreError> {
        self.leave_request(node, &request.id, crate::json::to_json(request)).await
    }

    /// Leaves a request about garbage for the worker of `node`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn request_garbage(&self, node: &NodeName, request: &GarbageRequest) -> Result<(), StoreError> {
        self.leave_request(node, &request.id, crate::json::to_json(request)).await
    }

    /// Leaves a request to check a login for the worker of `node`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn request_login_check(
        &self,
        node: &NodeName,
        request: &LoginCheckRequest,
    ) -> Result<(), StoreError> {
        self.leave_request(node, &request.id, crate::json::to_json(request)).await
    }

    async fn leave_request(&self, node: &NodeName, id: &str, request: String) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        let key = keys::log_requests(node);
        pipe.cmd("SET").arg(format!("{}:want", keys::log(id))).arg(1).arg("EX").arg(EXPIRE_SECONDS).ignore();
        pipe.cmd("RPUSH").arg(&key).arg(request).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(EXPIRE_SECONDS).ignore();
        pipe.cmd("PUBLISH").arg(channel::worker(node)).arg("logs").ignore();
        self.link.pipeline(&pipe).await
    }

    /// Takes the requests that wait for a worker. If the worker ends, readers ask again.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take_log_requests(&self, node: &NodeName) -> Result<Vec<AnyLogRequest>, StoreError> {
        let mut pop = cmd("LPOP");
        pop.arg(keys::log_requests(node)).arg(REQUESTS_AT_ONCE);
        let mut requests = Vec::new();
        // One hint may stand for many requests.
        loop {
            let found: Option<Vec<Vec<u8>>> = match self.link.query(&pop).await {
                Ok(found) => found,
                Err(error) if requests.is_empty() => return Err(error),
                // The taken requests are answered; the others are sent again.
                Err(_) => break,
            };
            let found = found.unwrap_or_default();
            requests.extend(found.iter().filter_map(|json| serde_json::from_slice(json).ok()));
            if found.len() < REQUESTS_AT_ONCE {
                break;
            }
        }
        Ok(requests)
    }

    /// Writes a chunk of the answer. Returns false if no client reads it any more.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn write_log(&self, id: &str, chunk: &LogChunk) -> Result<bool, StoreError> {
        match chunk {
            LogChunk::Output(bytes) => self.add_log(id, "output", bytes, None).await,
            LogChunk::End(why) => self.add_log(id, "end", why.as_bytes(), None).await,
        }
    }

    /// Like [`Store::write_log`] for output. `total` is the length of the answer including this chunk, which
    /// tells a slow reader how much was dropped.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn write_log_output(&self, id: &str, output: &[u8], total: u64) -> Result<bool, StoreError> {
        self.add_log(id, "output", output, Some(total)).await
    }

    async fn add_log(
        &self,
        id: &str,
        field: &str,
        value: &[u8],
        total: Option<u64>,
    ) -> Result<bool, StoreError> {
        let key = keys::log(id);
        let mut pipe = redis::pipe();
        pipe.cmd("XADD")
            .arg(&key)
            .arg("MAXLEN")
            .arg("~")
            .arg(MAX_CHUNKS)
            .arg("*")
            .arg(field)
            .arg(value)
            .arg(total.map(|total| ("total", total)))
            .ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(EXPIRE_SECONDS).ignore();
        pipe.cmd("EXISTS").arg(format!("{key}:want"));
        let (wanted,): (bool,) = self.link.pipeline(&pipe).await?;
        Ok(wanted)
    }

    /// Returns true if a client still reads the answer. For a worker whose container is quiet.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn log_is_wanted(&self, id: &str) -> Result<bool, StoreError> {
        self.link.query(cmd("EXISTS").arg(format!("{}:want", keys::log(id)))).await
    }

    /// Returns the number of unread chunks, or `None` if no client reads the answer any more.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn unread_log_chunks(&self, id: &str) -> Result<Option<usize>, StoreError> {
        let key = keys::log(id);
        let mut pipe = redis::pipe();
        pipe.cmd("EXISTS").arg(format!("{key}:want"));
        pipe.cmd("XLEN").arg(&key);
        let (is_wanted, chunks): (bool, usize) = self.link.pipeline(&pipe).await?;
        Ok(is_wanted.then_some(chunks))
    }

    /// Reads the chunks after `last` (`"0"` at first, then the returned one), and renews the expiry. Returns
    /// them and the new `last`. A line marks dropped output. Does not wait: call again, after
    /// [`Store::LOG_POLL`] if nothing came.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn read_log(&self, id: &str, last: &str) -> Result<(Vec<LogChunk>, String), StoreError> {
        let key = keys::log(id);
        let (mut last, mut read_bytes) = split_position(last);
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(format!("{key}:want")).arg(1).arg("EX").arg(EXPIRE_SECONDS).ignore();
        // Read chunks are removed: the worker waits while many are unread.
        pipe.cmd("XTRIM").arg(&key).arg("MINID").arg(&last).ignore();
        pipe.cmd("XRANGE").arg(&key).arg(format!("({last}")).arg("+").arg("COUNT").arg(100);
        let (entries,): (Value,) = self.link.pipeline(&pipe).await?;
        let mut chunks = Vec::new();
        for entry in list("reading logs", entries)? {
            let (at, fields): (String, Vec<(String, Vec<u8>)>) = read("reading logs", entry)?;
            last = at;
            let mut fields = fields.into_iter();
            let (field, value) = fields.next().ok_or_else(|| corrupt("reading logs", "empty entry"))?;
            let total = fields.next().and_then(|(_, total)| String::from_utf8_lossy(&total).parse().ok());
            let before = total.map(|total: u64| total.saturating_sub(value.len() as u64));
            if let Some(skipped) = before.and_then(|before| before.checked_sub(read_bytes)).filter(|n| *n > 0)
            {
                chunks.push(LogChunk::Output(format!("\n… {skipped} bytes skipped\n").into()));
            }
            read_bytes = total.unwrap_or(read_bytes);
            chunks.push(match field.as_str() {
                "end" => LogChunk::End(String::from_utf8_lossy(&value).into_owned()),
                _ => LogChunk::Output(value.into()),
            });
        }
        Ok((chunks, format!("{last} {read_bytes}")))
    }

    /// Waits for a whole answer, and ends the request. Returns the output and the final message; `None` if it
    /// has not ended after `limit`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn whole_answer(
        &self,
        id: &str,
        limit: Duration,
    ) -> Result<Option<(Vec<u8>, String)>, StoreError> {
        let answer = self.read_to_end(id, limit).await;
        // It expires.
        drop(self.end_log(id).await);
        answer
    }

    async fn read_to_end(&self, id: &str, limit: Duration) -> Result<Option<(Vec<u8>, String)>, StoreError> {
        let (mut output, mut position, begun) = (Vec::new(), "0".to_owned(), Instant::now());
        while begun.elapsed() < limit {
            let (chunks, next) = self.read_log(id, &position).await?;
            position = next;
            for chunk in chunks {
                match chunk {
                    LogChunk::Output(bytes) => output.extend_from_slice(&bytes),
                    LogChunk::End(why) => return Ok(Some((output, why))),
                }
            }
            tokio::time::sleep(Self::LOG_POLL).await;
        }
        Ok(None)
    }

    /// Ends a request: the worker stops at its next chunk.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn end_log(&self, id: &str) -> Result<(), StoreError> {
        let key = keys::log(id);
        self.link.query(cmd("DEL").arg(format!("{key}:want")).arg(&key)).await
    }

    /// Poll interval of a reader while nothing comes.
    pub const LOG_POLL: Duration = Duration::from_millis(100);
}

/// Splits a position of [`Store::read_log`] into an entry id and the bytes up to it.
fn split_position(position: &str) -> (String, u64) {
    let (id, bytes) = position.split_once(' ').unwrap_or((position, "0"));
    (id.to_owned(), bytes.parse().unwrap_or(0))
}
