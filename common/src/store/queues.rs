//! Looking at the queues, for people.

use redis::cmd;

use super::{Store, StoreError, keys};
use crate::ids::{NodeName, SchedulerId};

/// How much stands in the queues that are not a node's.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct QueueLengths {
    /// `sq`: waiting for a scheduler.
    pub waiting: u64,
    /// In the schedulers' hands.
    pub in_flight: u64,
    /// `uq`: fit no node right now.
    pub unschedulable: u64,
    /// `dq`: dead letters.
    pub dead: u64,
}

/// A queue that can be looked into.
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

impl Store {
    /// Lengths of the cluster's own queues.
    pub async fn queue_lengths(&self) -> Result<QueueLengths, StoreError> {
        let schedulers = self.schedulers().await?;
        let mut pipe = redis::pipe();
        pipe.cmd("LLEN").arg(keys::SQ);
        pipe.cmd("HLEN").arg(keys::UQ);
        pipe.cmd("LLEN").arg(keys::DQ);
        for (id, _) in &schedulers {
            pipe.cmd("LLEN").arg(keys::in_flight(id));
        }
        let lengths: Vec<u64> = self.link.pipeline(&pipe).await?;
        Ok(QueueLengths {
            waiting: lengths[0],
            unschedulable: lengths[1],
            dead: lengths[2],
            in_flight: lengths[3..].iter().sum(),
        })
    }

    /// Up to `count` payloads, the next to be taken first, as the very bytes.
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
