//! How many replicas there are, remembered for a minute.
//!
//! A replica that has just been cut off disappears from the master's INFO at once, yet it is the one a failover may
//! promote later. WAIT for the highest number seen lately is what kept acknowledged writes through failovers.

use std::time::{Duration, Instant};

const MEMORY: Duration = Duration::from_secs(60);

/// The numbers of replicas seen lately, falling; times rise alongside. At most a handful of entries.
#[derive(Debug, Default)]
pub(super) struct ReplicaMemory {
    seen: Vec<(Instant, usize)>,
}

impl ReplicaMemory {
    /// `count` replicas were seen at `now`.
    pub(super) fn note(&mut self, now: Instant, count: usize) {
        // A smaller number that was seen earlier can never be the highest again.
        self.seen.retain(|&(at, known)| known > count && now.duration_since(at) < MEMORY);
        self.seen.push((now, count));
    }

    /// The highest number seen within the last minute before `now`.
    pub(super) fn highest(&self, now: Instant) -> usize {
        let recent = self.seen.iter().filter(|(at, _)| now.duration_since(*at) < MEMORY);
        recent.map(|&(_, count)| count).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_highest_for_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut memory = ReplicaMemory::default();
        assert_eq!(memory.highest(at(0)), 0);
        for (second, count, highest) in
            [(0, 2, 2), (1, 0, 2), (30, 1, 2), (59, 0, 2), (60, 0, 1), (89, 0, 1), (90, 0, 0), (91, 3, 3)]
        {
            memory.note(at(second), count);
            assert_eq!(memory.highest(at(second)), highest, "second {second}");
        }
        assert_eq!(memory.highest(at(200)), 0);
    }

    #[test]
    fn stays_small() {
        let start = Instant::now();
        let mut memory = ReplicaMemory::default();
        for second in 0..10_000 {
            memory.note(start + Duration::from_millis(second * 100), (second % 3) as usize);
        }
        assert!(memory.seen.len() <= 3, "{}", memory.seen.len());
    }
}
