//! The messages that scripts publish. The simulator delivers them: late, twice or never.

use ::redis::Value;
use bytes::Bytes;
use store::channel;

use crate::machine::network::PendingHint;
use crate::machine::redis_values::byte_strings;
use crate::world::state::World;

/// In milliseconds.
const USUAL_DELAY: u64 = 20;

impl World {
    /// `published` alternates between channel and message.
    pub(crate) fn schedule_hints(&mut self, published: Value) {
        for pair in byte_strings(published).chunks_exact(2) {
            let channel = String::from_utf8_lossy(&pair[0]).into_owned();
            let message = Bytes::copy_from_slice(&pair[1]);
            if self.faults.loses_scheduler_hints && channel == channel::SCHEDULER {
                continue;
            }
            let kind = if self.faults.are_over { 1000 } else { self.random.next() % 1000 };
            let soon = self.clock.now + self.random.between(0, USUAL_DELAY);
            let late = self.clock.now + self.random.between(0, self.timing.dead);
            self.stats.faulty_hints += u64::from(kind < 150);
            let deliveries = match kind {
                0..50 => vec![],
                50..100 => vec![late],
                100..150 => vec![soon, late],
                _ => vec![soon],
            };
            for deliver_at in deliveries {
                let (channel, message) = (channel.clone(), message.clone());
                self.network.hints.push(PendingHint { deliver_at, channel, message });
            }
        }
    }

    /// Not to partitioned subscribers.
    pub(crate) fn deliver_hints(&mut self) {
        let now = self.clock.now;
        let due: Vec<PendingHint> =
            self.network.hints.extract_if(.., |hint| hint.deliver_at <= now).collect();
        if due.is_empty() {
            return;
        }
        let partitioned: Vec<u64> = self
            .cluster
            .slots
            .iter()
            .filter(|slot| slot.is_partitioned(now))
            .filter_map(|slot| Some(slot.process.as_ref()?.instance))
            .collect();
        let bus = self.bus.lock();
        let reachable = |instance| !partitioned.contains(&instance);
        for hint in due {
            for subscriber in bus.subscribers.iter().filter(|subscriber| reachable(subscriber.instance)) {
                (subscriber.handler)(&hint.channel, hint.message.clone());
            }
        }
    }
}
