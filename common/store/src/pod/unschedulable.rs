//! Pods that fit no node, by class, and their return to the queue.
//!
//! Tests: scripts::unschedulable

use bytes::Bytes;

use crate::reply::read;
use crate::scripts::{unpark, unschedulable_classes};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::pod::Refusal;

/// See [`Parked::class`](crate::Parked::class).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulableClass {
    pub class: String,
    pub pods: usize,
    /// When the oldest pod was parked.
    pub since: RedisMillis,
    /// Payload of the oldest pod.
    pub example: Bytes,
    /// Why the oldest pod was parked; empty if that is unreadable.
    pub refusals: Vec<Refusal>,
}

type ClassRow = (String, usize, RedisMillis, Vec<u8>, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unparked {
    pub pods: usize,
    /// See [`Store::freed`].
    pub freed: u64,
}

impl Store {
    /// Returns pods whose wait is over to the queue; of each class at most the oldest one.
    pub async fn unpark_due(&self, max: usize) -> Result<Unparked, StoreError> {
        self.unpark(&[], max).await
    }

    /// Returns the oldest pods of each class to the queue, as many as the number says.
    pub async fn unpark_classes(&self, classes: &[(&str, usize)]) -> Result<usize, StoreError> {
        if classes.is_empty() {
            return Ok(0);
        }
        Ok(self.unpark(classes, 0).await?.pods)
    }

    async fn unpark(&self, classes: &[(&str, usize)], max_count: usize) -> Result<Unparked, StoreError> {
        let mut call = unpark::Head {
            sq: keys::SQ,
            uq: keys::UQ,
            uq_at: keys::UQ_AT,
            uq_why: keys::UQ_WHY,
            uq_class: keys::UQ_CLASS,
            uq_by_class: keys::UQ_BY_CLASS,
            max_count,
        }
        .call();
        for (class, count) in classes {
            call.add(unpark::Class { class: *class, count: *count });
        }
        let reply = self.link.script(&call).await?;
        let (pods, freed) = read("requeueing unschedulable pods", reply)?;
        Ok(Unparked { pods, freed })
    }

    /// Returns the classes that follow `after` in their order; `""` begins.
    pub async fn unschedulable_classes(
        &self,
        after: &str,
        max: usize,
    ) -> Result<Vec<UnschedulableClass>, StoreError> {
        let call = unschedulable_classes::Head {
            uq: keys::UQ,
            uq_why: keys::UQ_WHY,
            uq_class: keys::UQ_CLASS,
            uq_by_class: keys::UQ_BY_CLASS,
            after,
            max_count: max,
        }
        .call();
        let rows: Vec<ClassRow> =
            read("reading the classes of unschedulable pods", self.link.script(&call).await?)?;
        let class = |(class, pods, since, example, refusals): ClassRow| {
            let refusals = serde_json::from_slice(&refusals).unwrap_or_default();
            UnschedulableClass { class, pods, since, example: example.into(), refusals }
        };
        Ok(rows.into_iter().map(class).collect())
    }
}
