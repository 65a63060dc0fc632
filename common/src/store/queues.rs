//! The content of the queues, for people.

use redis::cmd;

use super::broken::length_or_broken;
use super::{BrokenKey, Store, StoreError, keys, or_broken};
use crate::ids::{NodeName, PodId, SchedulerId};

/// A field of a hash and its value.
type RawEntry = (Vec<u8>, Vec<u8>);

/// How many entries of a hash one command reads, approximately.
const MAX_SCAN: usize = 1000;

/// The lengths of the queues that do not belong to a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct QueueLengths {
    /// `sq`: waiting for a scheduler.
    pub waiting: u64,
    /// `fq:<scheduler>`: in flight in all schedulers.
    pub in_flight: u64,
    /// `uq`: unschedulable right now.
    pub unschedulable: u64,
    /// `dq`: dead letters.
    pub dead: u64,
}

/// A queue that [`Store::peek`] can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueName {
    /// `sq`.
    Waiting,
    /// `fq:<scheduler>`.
    InFlight(SchedulerId),
    /// `pq:<node>`.
    Pending(NodeName),
    /// `rq:<node>`.
    Starting(NodeName),
    /// `cs:<node>`.
    Running(NodeName),
}

/// A pod that fits no node right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulablePod {
    /// Its payload, byte for byte.
    pub payload: Vec<u8>,
    /// Why it fits no node; `None` if its record does not say so any more.
    pub reason: Option<String>,
}

impl Store {
    /// Returns the lengths of the queues that do not belong to a node; 0 for one that cannot be read.
    ///
    /// # Errors
    /// Those that are not about one key, see [`StoreError::is_broken_key`].
    pub async fn queue_lengths(&self) -> Result<QueueLengths, StoreError> {
        Ok(self.queue_lengths_and_broken().await?.0)
    }

    /// As [`Store::queue_lengths`]. Also returns the queues that cannot be read.
    ///
    /// # Errors
    /// Those that are not about one key, see [`StoreError::is_broken_key`].
    pub async fn queue_lengths_and_broken(&self) -> Result<(QueueLengths, Vec<BrokenKey>), StoreError> {
        let mut broken = Vec::new();
        let schedulers = or_broken(self.schedulers().await, &mut broken, BrokenKey::schedulers)?;
        let mut pipe = redis::pipe();
        pipe.cmd("LLEN").arg(keys::SQ);
        pipe.cmd("HLEN").arg(keys::UQ);
        pipe.cmd("LLEN").arg(keys::DQ);
        for (id, _) in &schedulers {
            pipe.cmd("LLEN").arg(keys::in_flight(id));
        }
        let own = [keys::SQ, keys::UQ, keys::DQ].map(str::to_owned).into_iter();
        let queues = own.chain(schedulers.iter().map(|(id, _)| keys::in_flight(id)));
        let replies = self.link.pipeline_each(pipe).await?;
        let lengths = queues.zip(replies).map(|(key, reply)| length_or_broken(reply, key, &mut broken));
        let lengths = lengths.collect::<Result<Vec<u64>, _>>()?;
        let lengths = QueueLengths {
            waiting: lengths[0],
            unschedulable: lengths[1],
            dead: lengths[2],
            in_flight: lengths[3..].iter().sum(),
        };
        Ok((lengths, broken))
    }

    /// Returns up to `count` pods that fit no node right now, in no particular order.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn unschedulable_pods(&self, count: usize) -> Result<Vec<UnschedulablePod>, StoreError> {
        let (mut found, mut cursor) = (Vec::<(PodId, Vec<u8>)>::new(), 0_u64);
        while found.len() < count {
            let mut scan = cmd("HSCAN");
            scan.arg(keys::UQ).arg(cursor).arg("COUNT").arg(count.min(MAX_SCAN));
            let (next, page): (u64, Vec<RawEntry>) = self.link.query(&scan).await?;
            let pod = |(id, payload)| Some((PodId::new(String::from_utf8(id).ok()?).ok()?, payload));
            found.extend(page.into_iter().filter_map(pod));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        found.truncate(count);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for (id, _) in &found {
            pipe.cmd("HGET").arg(keys::pod(id)).arg("message");
        }
        let reasons = self.link.pipeline_each(pipe).await?.into_iter();
        // A record of another type is reported elsewhere.
        let reasons = reasons.map(|reply| reply.ok().and_then(|value| redis::from_redis_value(value).ok()));
        let pods = found.into_iter().zip(reasons);
        Ok(pods.map(|((_, payload), reason)| UnschedulablePod { payload, reason }).collect())
    }

    /// Returns up to `count` payloads of a queue, byte for byte, the next to be taken first.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn peek(&self, queue: &QueueName, count: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let key = match queue {
            QueueName::Waiting => keys::SQ.to_owned(),
            QueueName::InFlight(id) => keys::in_flight(id),
            QueueName::Pending(node) => keys::pq(node),
            QueueName::Starting(node) => keys::rq(node),
            QueueName::Running(node) => {
                return self.link.query(cmd("SRANDMEMBER").arg(keys::cs(node)).arg(count)).await;
            }
        };
        let mut range = cmd("LRANGE");
        range.arg(key).arg(-(count as i64)).arg(-1);
        let mut found: Vec<Vec<u8>> = self.link.query(&range).await?;
        found.reverse();
        Ok(found)
    }
}
