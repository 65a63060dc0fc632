//! Dead letters: payloads that cannot be a pod, kept byte for byte until an operator decides. The newest is
//! first in `dq`.
//!
//! Tests: scripts::dead_letters

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redis::cmd;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::reply::{unexpected, word};
use crate::scripts::{dead_letter_requeue, reject};
use crate::service::stored_spec::hex;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{Incarnation, NodeName, PodId, SchedulerId};
use model::node::Resources;
use model::pod::lifecycle::Phase;
use model::pod::payload::{InvalidPayload, Payload};

const ENTRIES_PER_READ: usize = 16;
const MAX_READ_BYTES: usize = 16 * 1024 * 1024;

pub(crate) enum TakenBy<'a> {
    Worker(&'a NodeName, &'a Incarnation),
    Scheduler(&'a SchedulerId),
}

/// The pod of a rejected payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedPod<'a> {
    /// Its payload does not say.
    Unreadable,
    /// It fails, if it is where the payload is.
    Known(&'a PodId),
    /// The reason is that it has no record. If it has one by now, nothing happens.
    WithoutRecord(&'a PodId),
}

impl<'a> From<Option<&'a PodId>> for RejectedPod<'a> {
    fn from(id: Option<&'a PodId>) -> Self {
        id.map_or(Self::Unreadable, Self::Known)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct DeadLetterJson {
    queue: String,
    payload: String,
    /// `base64` if the payload is not UTF-8, which JSON cannot represent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    reason: String,
    at: RedisMillis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// Twelve hex digits of the SHA-256 of the entry in `dq`.
    pub id: String,
    pub queue: String,
    pub payload: Vec<u8>,
    /// The payload had more than 512 KiB: only the first KiB is kept.
    pub is_truncated: bool,
    pub reason: String,
    pub at: RedisMillis,
    entry: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EditedPayload {
    payload: Payload,
    request: Resources,
}

impl EditedPayload {
    /// A node's policy may still refuse it.
    pub fn parse(raw: Bytes) -> Result<Self, InvalidPayload> {
        let payload = Payload::parse(raw)?;
        let request = payload.inline_spec()?.pod.request();
        Ok(Self { payload, request })
    }

    pub fn pod(&self) -> &PodId {
        &self.payload.id
    }
}

/// Only `Queued` changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetterRequeue {
    Queued,
    Gone,
    /// The payload would be dropped.
    PodEnded,
    /// An edited payload names another pod, which has not ended.
    PodExists,
    /// An edited payload names a pod of a service.
    PodOfService,
    /// The payload is truncated, and no replacement was given.
    Truncated,
}

impl DeadLetter {
    /// Other programs can write entries to `dq` that name another key; a requeue must not write there.
    pub fn can_be_requeued(&self) -> bool {
        self.queue == keys::SQ
            || self.queue.strip_prefix("pq:").is_some_and(|node| NodeName::new(node).is_ok())
    }

    fn parse(entry: Vec<u8>) -> Self {
        let id = hex(&Sha256::digest(&entry)[..6]);
        let file = serde_json::from_slice::<DeadLetterJson>(&entry).unwrap_or_else(|_| DeadLetterJson {
            queue: keys::DQ.to_owned(),
            payload: String::from_utf8_lossy(&entry).into_owned(),
            encoding: None,
            reason: "this entry was not written by kubeleet".to_owned(),
            at: 0,
        });
        let payload = match file.encoding.as_deref() {
            Some("hex") => decode_hex(&file.payload).unwrap_or_else(|| file.payload.into_bytes()),
            Some("base64") => STANDARD.decode(&file.payload).unwrap_or_else(|_| file.payload.into_bytes()),
            _ => file.payload.into_bytes(),
        };
        // Only the script that rejects oversized payloads writes hex.
        let is_truncated = file.encoding.as_deref() == Some("hex");
        Self { id, queue: file.queue, payload, is_truncated, reason: file.reason, at: file.at, entry }
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?) as u8);
    text.as_bytes().chunks(2).map(byte).collect()
}

/// Leaves the value of `at` out: the script appends the time of Redis.
fn entry_without_time(queue: &str, payload: &[u8], reason: &str) -> String {
    let (payload, encoding) = match std::str::from_utf8(payload) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (STANDARD.encode(payload), Some("base64".to_owned())),
    };
    let file =
        DeadLetterJson { queue: queue.to_owned(), payload, encoding, reason: reason.to_owned(), at: 0 };
    let text = crate::json::to_json(&file);
    text.strip_suffix("0}").expect("`at` is the last field, and 0 here").to_owned()
}

impl Store {
    /// Returns the reply of `reject.lua`.
    pub(crate) async fn reject(
        &self,
        taken_by: TakenBy<'_>,
        payload: &[u8],
        pod: RejectedPod<'_>,
        reason: &str,
    ) -> Result<String, StoreError> {
        let (id, only_unknown) = match pod {
            RejectedPod::Unreadable => (None, false),
            RejectedPod::Known(id) => (Some(id), false),
            RejectedPod::WithoutRecord(id) => (Some(id), true),
        };
        let (source, queue, node_key, session) = match taken_by {
            TakenBy::Worker(node, incarnation) => {
                (keys::rq(node), keys::pq(node), keys::node(node), Some((node, incarnation)))
            }
            TakenBy::Scheduler(id) => (keys::in_flight(id), keys::SQ.to_owned(), "node:".to_owned(), None),
        };
        let reject = reject::Head {
            source,
            dq: keys::DQ,
            node_key,
            pod_key: id.map_or_else(|| "pod:".to_owned(), keys::pod),
            queue: &queue,
            payload,
            dead_letter: entry_without_time(&queue, payload, reason),
            reason,
            uuid: id,
            node: session.map(|(node, _)| node),
            incarnation: session.map(|(_, incarnation)| incarnation),
            only_unknown,
        };
        word("rejecting a payload", self.link.script(&reject.call()).await?)
    }

    /// Returns false if it is not in flight, or has a record that it had not.
    pub async fn reject_in_flight<'a>(
        &self,
        scheduler: &SchedulerId,
        payload: &[u8],
        pod: impl Into<RejectedPod<'a>>,
        reason: &str,
    ) -> Result<bool, StoreError> {
        Ok(self.reject(TakenBy::Scheduler(scheduler), payload, pod.into(), reason).await? == "OK")
    }

    /// Returns the newest first, at most 16 MiB but at least one.
    pub async fn dead_letters(&self, offset: usize, count: usize) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self.dead_letter_page(offset, count).await?.0)
    }

    /// Also returns whether there may be more.
    pub async fn dead_letter_page(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<(Vec<DeadLetter>, bool), StoreError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        while found.len() < count {
            let from = offset + found.len();
            let asked = ENTRIES_PER_READ.min(count - found.len());
            let mut range = cmd("LRANGE");
            range.arg(keys::DQ).arg(from).arg(from + asked - 1);
            let entries: Vec<Vec<u8>> = self.link.query(&range).await?;
            let received = entries.len();
            for entry in entries {
                bytes += entry.len();
                if bytes > MAX_READ_BYTES && !found.is_empty() {
                    return Ok((found, true));
                }
                found.push(DeadLetter::parse(entry));
            }
            if received < asked {
                return Ok((found, false));
            }
        }
        Ok((found, true))
    }

    /// Queues it in `sq` if the node of its queue has left the cluster.
    ///
    /// # Errors
    /// `Refused` if [`DeadLetter::can_be_requeued`] is false.
    pub async fn requeue_dead_letter(
        &self,
        dead_letter: &DeadLetter,
        edited: Option<&EditedPayload>,
    ) -> Result<DeadLetterRequeue, StoreError> {
        let what = "requeueing a dead letter";
        if !dead_letter.can_be_requeued() {
            return Err(StoreError::Refused(format!("{:?} is no queue of kubeleet", dead_letter.queue)));
        }
        if dead_letter.is_truncated && edited.is_none() {
            return Ok(DeadLetterRequeue::Truncated);
        }
        let node = dead_letter.queue.strip_prefix("pq:").and_then(|node| NodeName::new(node).ok());
        let parsed = match edited {
            Some(edited) => Some(edited.payload.clone()),
            None => Payload::parse(dead_letter.payload.clone().into()).ok(),
        };
        let (pod, request) =
            (parsed.as_ref(), edited.map_or_else(Resources::default, |edited| edited.request));
        let requeue = dead_letter_requeue::Head {
            dq: keys::DQ,
            source_queue: &dead_letter.queue,
            sq: keys::SQ,
            pod_key: pod.map_or_else(|| "pod:".to_owned(), |pod| keys::pod(&pod.id)),
            nodes: keys::NODES,
            pushed: keys::PUSHED,
            dead_letter: &dead_letter.entry[..],
            payload: edited.map_or(&dead_letter.payload[..], |edited| &edited.payload.raw[..]),
            uuid: pod.map(|pod| &pod.id),
            node: node.as_ref(),
            is_edited: edited.is_some(),
            name: pod.map(|pod| &pod.name),
            image: pod.map(|pod| &pod.image),
            replica: pod.map_or(0, |pod| pod.replica),
            resources: &request,
        };
        match word(what, self.link.script(&requeue.call()).await?)?.as_str() {
            "OK" => Ok(DeadLetterRequeue::Queued),
            "GONE" => Ok(DeadLetterRequeue::Gone),
            "ENDED" => Ok(DeadLetterRequeue::PodEnded),
            "EXISTS" => Ok(DeadLetterRequeue::PodExists),
            "IN_SERVICE" => Ok(DeadLetterRequeue::PodOfService),
            other => Err(unexpected(what, other)),
        }
    }

    /// Discards dead letters whose service was deleted, scaled down or replaced since: it could rebuild the
    /// payloads. Returns them and the next offset.
    pub async fn discard_obsolete_dead_letters(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<(Vec<DeadLetter>, Option<usize>), StoreError> {
        let (found, has_more) = self.dead_letter_page(offset, count).await?;
        let behind = offset + found.len();
        let next = |dropped: usize| has_more.then(|| behind - dropped);
        let of_services = found.into_iter().filter_map(|dead_letter| {
            let payload = Payload::parse(dead_letter.payload.clone().into()).ok()?;
            payload.spec.is_some().then_some((dead_letter, payload.id))
        });
        let of_services: Vec<_> = of_services.collect();
        let mut dropped = Vec::new();
        if of_services.is_empty() {
            return Ok((dropped, next(0)));
        }
        let mut pipe = redis::pipe();
        for (_, id) in &of_services {
            pipe.cmd("HMGET").arg(keys::pod(id)).arg("phase").arg("service");
        }
        for ((dead_letter, _), reply) in of_services.into_iter().zip(self.link.pipeline_each(pipe).await?) {
            let record = reply
                .ok()
                .and_then(|value| redis::from_redis_value::<(Option<String>, Option<String>)>(value).ok());
            // The phase is final: no process can want the pod again.
            let is_obsolete =
                matches!(&record, Some((Some(phase), Some(_))) if phase == Phase::Stopped.as_str());
            if is_obsolete && self.discard_dead_letter(&dead_letter).await? {
                dropped.push(dead_letter);
            }
        }
        let next = next(dropped.len());
        Ok((dropped, next))
    }

    pub async fn discard_dead_letter(&self, dead_letter: &DeadLetter) -> Result<bool, StoreError> {
        let removed: u64 = self.link.query(cmd("LREM").arg(keys::DQ).arg(1).arg(&dead_letter.entry)).await?;
        Ok(removed > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_keeps_any_bytes() {
        for payload in [&b"{\"a\":\"\\u0000\"}"[..], b"\xff\xfe\x00", b"", "\"…\"".as_bytes()] {
            let entry = format!("{}1700000000000}}", entry_without_time("pq:w", payload, "because"));
            let dead_letter = DeadLetter::parse(entry.into_bytes());
            assert_eq!((dead_letter.payload.as_slice(), dead_letter.at), (payload, 1_700_000_000_000));
            assert_eq!((dead_letter.queue.as_str(), dead_letter.reason.as_str()), ("pq:w", "because"));
        }
    }
}
