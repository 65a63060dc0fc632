//! The content of the queues, for operators.

use redis::cmd;

use crate::broken_key::length_or_broken;
use crate::loaded::field;
use crate::reply::{parse, read};
use crate::{RedisKey, Store, StoreError, keys, or_broken};
use model::broken_key::BrokenKey;
use model::ids::{NodeName, PodId, SchedulerId};
use model::queue_lengths::QueueLengths;

type RawEntry = (Vec<u8>, Vec<u8>);

const MAX_SCAN: usize = 1000;
/// One command reads 64 small entries of a larger key, or one large entry.
const MAX_AT_ONCE_BYTES: usize = 8 * 1024 * 1024;
const ENTRIES_PER_READ: usize = 64;
const SMALL: usize = 4 * 1024;
const MAX_SAMPLES: usize = 1000;
const MAX_PEEK_BYTES: usize = 4 * 1024 * 1024;
const MAX_READ_BYTES: usize = 64 * 1024 * 1024;
/// Only the first KiB of a longer payload is shown; no process takes it.
const MAX_SHOWN_BYTES: usize = 512 * 1024;
const KEPT: usize = 1024;

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked<T> {
    pub items: Vec<T>,
    pub left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedPayload {
    /// Only the first KiB of more than 512 KiB.
    pub bytes: Vec<u8>,
    /// In bytes, of the whole payload.
    pub length: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulablePod {
    pub payload: PeekedPayload,
    pub reason: Option<String>,
}

impl Store {
    /// # Errors
    /// Broken keys cause none.
    pub async fn queue_lengths(&self) -> Result<QueueLengths, StoreError> {
        Ok(self.queue_lengths_and_broken().await?.0)
    }

    pub async fn queue_lengths_and_broken(&self) -> Result<(QueueLengths, Vec<BrokenKey>), StoreError> {
        let mut broken = Vec::new();
        let schedulers = or_broken(self.schedulers().await, &mut broken, RedisKey::Schedulers)?;
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

    pub async fn unschedulable_pods(&self, count: usize) -> Result<Peeked<UnschedulablePod>, StoreError> {
        let chunk = self.entries_per_read(keys::UQ, "HLEN").await?;
        let (mut peek, mut cursor) = (Peek::new(count), 0_u64);
        let mut ids = Vec::new();
        while !peek.is_full {
            let mut scan = cmd("HSCAN");
            scan.arg(keys::UQ).arg(cursor).arg("COUNT").arg(chunk.min(count));
            let (next, page): (u64, Vec<RawEntry>) = self.link.query(&scan).await?;
            for (id, payload) in page {
                if let Some(id) = parse(&id)
                    && peek.add(payload)
                {
                    ids.push(id);
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        if ids.is_empty() {
            return Ok(Peeked { items: Vec::new(), left_out: 0 });
        }
        let get = |id: &PodId| field(keys::pod(id), "message");
        let parse = |_: &PodId, reply| read("reading why a pod waits", reply);
        // Records of another type are reported elsewhere.
        let reasons = self.load(&ids, get, parse).await?.options();
        let found = peek.finish(self.link.query(cmd("HLEN").arg(keys::UQ)).await?);
        let pods = found.items.into_iter().zip(reasons);
        let items = pods.map(|(payload, reason)| UnschedulablePod { payload, reason }).collect();
        Ok(Peeked { items, left_out: found.left_out })
    }

    /// Returns the next to be taken first; `cs:<node>` has no order.
    pub async fn peek(&self, queue: &QueueName, count: usize) -> Result<Peeked<PeekedPayload>, StoreError> {
        let key = match queue {
            QueueName::Waiting => keys::SQ.to_owned(),
            QueueName::InFlight(id) => keys::in_flight(id),
            QueueName::Pending(node) => keys::pq(node),
            QueueName::Starting(node) => keys::rq(node),
            QueueName::Running(node) => return self.peek_set(&keys::cs(node), count).await,
        };
        let chunk = self.entries_per_read(&key, "LLEN").await?;
        let (mut peek, mut read) = (Peek::new(count), 0);
        while !peek.is_full {
            let asked = chunk.min(count - read);
            let mut range = cmd("LRANGE");
            range.arg(&key).arg(-((read + asked) as i64)).arg(-((read + 1) as i64));
            let found: Vec<Vec<u8>> = self.link.query(&range).await?;
            read += asked;
            let is_last = found.len() < asked || read >= count;
            for payload in found.into_iter().rev() {
                peek.add(payload);
            }
            if is_last {
                break;
            }
        }
        Ok(peek.finish(self.link.query(cmd("LLEN").arg(&key)).await?))
    }

    async fn peek_set(&self, key: &str, count: usize) -> Result<Peeked<PeekedPayload>, StoreError> {
        let chunk = self.entries_per_read(key, "SCARD").await?;
        let (mut peek, mut cursor) = (Peek::new(count), 0_u64);
        while !peek.is_full {
            let mut scan = cmd("SSCAN");
            scan.arg(key).arg(cursor).arg("COUNT").arg(chunk.min(count));
            let (next, page): (u64, Vec<Vec<u8>>) = self.link.query(&scan).await?;
            for payload in page {
                peek.add(payload);
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        Ok(peek.finish(self.link.query(cmd("SCARD").arg(key)).await?))
    }

    /// Payloads may have half a gigabyte: large ones are read one by one.
    async fn entries_per_read(&self, key: &str, length: &str) -> Result<usize, StoreError> {
        let length: usize = self.link.query(cmd(length).arg(key)).await?;
        let mut usage = cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(MAX_SAMPLES);
        let bytes: usize = self.link.query::<Option<usize>>(&usage).await?.unwrap_or(0);
        Ok(match bytes {
            _ if bytes <= MAX_AT_ONCE_BYTES => MAX_SCAN,
            _ if bytes / length.max(1) <= SMALL => ENTRIES_PER_READ,
            _ => 1,
        })
    }
}

struct Peek {
    count: usize,
    items: Vec<PeekedPayload>,
    shown: usize,
    read: usize,
    is_full: bool,
}

impl Peek {
    fn new(count: usize) -> Self {
        Self { count, items: Vec::new(), shown: 0, read: 0, is_full: count == 0 }
    }

    fn add(&mut self, mut bytes: Vec<u8>) -> bool {
        let length = bytes.len();
        if length > MAX_SHOWN_BYTES {
            bytes.truncate(KEPT);
            bytes.shrink_to_fit();
        }
        self.read = self.read.saturating_add(length);
        if self.is_full || self.shown + bytes.len() > MAX_PEEK_BYTES {
            self.is_full = true;
            return false;
        }
        self.shown += bytes.len();
        self.items.push(PeekedPayload { bytes, length });
        self.is_full = self.items.len() >= self.count || self.read > MAX_READ_BYTES;
        true
    }

    fn finish(self, length: usize) -> Peeked<PeekedPayload> {
        let left_out = length.min(self.count).saturating_sub(self.items.len()) as u64;
        Peeked { items: self.items, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peek_ends_at_its_count_or_its_bytes_and_shows_the_beginning_of_giants() {
        let mut few = Peek::new(2);
        assert!(few.add(b"a".to_vec()) && few.add(b"b".to_vec()) && few.is_full);
        assert!(!few.add(b"c".to_vec()));
        assert_eq!(few.finish(10).left_out, 0, "no more were asked for");

        let mut many = Peek::new(100);
        while many.add(vec![b'x'; MAX_SHOWN_BYTES]) {}
        let found = many.finish(50);
        assert_eq!((found.items.len(), found.left_out), (MAX_PEEK_BYTES / MAX_SHOWN_BYTES, 42));

        let mut giants = Peek::new(100);
        while !giants.is_full {
            assert!(giants.add(vec![b'x'; MAX_READ_BYTES / 2]));
        }
        let found = giants.finish(4);
        assert_eq!((found.items.len(), found.left_out), (3, 1));
        assert_eq!((found.items[0].bytes.len(), found.items[0].length), (KEPT, MAX_READ_BYTES / 2));
    }
}
