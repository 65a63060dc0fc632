//! Dead letters: what could not be a pod, kept byte for byte with the reason, until a person decides.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis::cmd;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::reply::{unexpected, word};
use super::scripts::{self, call};
use super::{Store, StoreError, keys};
use crate::RedisMillis;
use crate::ids::{Incarnation, NodeName, PodId, SchedulerId};
use crate::payload::Payload;

/// Who holds the payload that is rejected.
pub(crate) enum Place<'a> {
    Worker(&'a NodeName, &'a Incarnation),
    Scheduler(&'a SchedulerId),
}

/// A dead letter as it stands in `dq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LetterFile {
    queue: String,
    payload: String,
    /// Present when the payload is not UTF-8: `payload` is then its base64, so that it stays byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    reason: String,
    at: RedisMillis,
}

/// A dead letter, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    /// First twelve digits of the SHA-256 of the entry: stable as long as it lies there.
    pub id: String,
    /// The queue the payload came through.
    pub queue: String,
    /// The payload, byte for byte.
    pub payload: Vec<u8>,
    /// Why it could not be a pod.
    pub reason: String,
    /// When it was rejected.
    pub at: RedisMillis,
    entry: Vec<u8>,
}

impl Letter {
    fn read(entry: Vec<u8>) -> Self {
        let digest = Sha256::digest(&entry);
        let id = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let file = serde_json::from_slice::<LetterFile>(&entry).unwrap_or_else(|_| LetterFile {
            queue: keys::DQ.to_owned(),
            payload: String::from_utf8_lossy(&entry).into_owned(),
            encoding: None,
            reason: "somebody put this here by hand".to_owned(),
            at: 0,
        });
        let payload = match file.encoding.as_deref() {
            Some("base64") => STANDARD.decode(&file.payload).unwrap_or_else(|_| file.payload.into_bytes()),
            _ => file.payload.into_bytes(),
        };
        Self { id, queue: file.queue, payload, reason: file.reason, at: file.at, entry }
    }
}

/// The entry up to the time, which the script adds: it is Redis' to say.
fn letter_without_time(queue: &str, payload: &[u8], reason: &str) -> String {
    let (payload, encoding) = match std::str::from_utf8(payload) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (STANDARD.encode(payload), Some("base64".to_owned())),
    };
    let file = LetterFile { queue: queue.to_owned(), payload, encoding, reason: reason.to_owned(), at: 0 };
    let text = super::services::to_json(&file);
    text.strip_suffix("0}").expect("`at` is the last field, and 0 here").to_owned()
}

impl Store {
    /// Moves a payload out of a worker's rq or a scheduler's hands to the dead letters, if it is still there.
    pub(crate) async fn reject(
        &self,
        place: Place<'_>,
        payload: &[u8],
        id: Option<&PodId>,
        reason: &str,
    ) -> Result<String, StoreError> {
        let (source, queue, node_key, node, incarnation) = match place {
            Place::Worker(node, incarnation) => {
                (keys::rq(node), keys::pq(node), keys::node(node), node.as_str(), incarnation.as_str())
            }
            Place::Scheduler(id) => (keys::in_flight(id), keys::SQ.to_owned(), "node:".to_owned(), "", ""),
        };
        let mut reject = call(&scripts::reject);
        reject.key(source).key(keys::DQ).key(node_key);
        reject.key(id.map_or_else(|| "pod:".to_owned(), keys::pod));
        reject.arg(&queue).arg(payload).arg(letter_without_time(&queue, payload, reason)).arg(reason);
        reject.arg(id.map(PodId::as_str).unwrap_or_default()).arg(node).arg(incarnation);
        word("rejecting a payload", self.link.script(&reject).await?)
    }

    /// Moves a payload out of a scheduler's hands to the dead letters; false when it was not there any more.
    pub async fn reject_in_flight(
        &self,
        scheduler: &SchedulerId,
        payload: &[u8],
        id: Option<&PodId>,
        reason: &str,
    ) -> Result<bool, StoreError> {
        Ok(self.reject(Place::Scheduler(scheduler), payload, id, reason).await? == "OK")
    }

    /// Dead letters, newest first.
    pub async fn letters(&self, offset: usize, count: usize) -> Result<Vec<Letter>, StoreError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut range = cmd("LRANGE");
        range.arg(keys::DQ).arg(offset).arg(offset + count - 1);
        let entries: Vec<Vec<u8>> = self.link.query(&range).await?;
        Ok(entries.into_iter().map(Letter::read).collect())
    }

    /// Gives a dead letter's payload another try; false when the letter is gone.
    pub async fn requeue_letter(&self, letter: &Letter) -> Result<bool, StoreError> {
        let head = Payload::parse(letter.payload.clone().into()).ok();
        let mut requeue = call(&scripts::letter_requeue);
        requeue.key(keys::DQ).key(&letter.queue).key(keys::SQ);
        requeue.key(head.as_ref().map_or_else(|| "pod:".to_owned(), |head| keys::pod(&head.id)));
        requeue.arg(&letter.entry).arg(&letter.payload);
        requeue.arg(head.as_ref().map(|head| head.id.as_str()).unwrap_or_default());
        match word("requeueing a dead letter", self.link.script(&requeue).await?)?.as_str() {
            "OK" => Ok(true),
            "GONE" => Ok(false),
            other => Err(unexpected("requeueing a dead letter", other)),
        }
    }

    /// Throws a dead letter away; false when it is gone already.
    pub async fn drop_letter(&self, letter: &Letter) -> Result<bool, StoreError> {
        let removed: u64 = self.link.query(cmd("LREM").arg(keys::DQ).arg(1).arg(&letter.entry)).await?;
        Ok(removed > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_keeps_any_bytes() {
        for payload in [&b"{\"a\":\"\\u0000\"}"[..], b"\xff\xfe\x00", b"", "\"…\"".as_bytes()] {
            let entry = format!("{}1700000000000}}", letter_without_time("pq:w", payload, "because"));
            let letter = Letter::read(entry.into_bytes());
            assert_eq!((letter.payload.as_slice(), letter.at), (payload, 1_700_000_000_000));
            assert_eq!((letter.queue.as_str(), letter.reason.as_str()), ("pq:w", "because"));
        }
    }
}
