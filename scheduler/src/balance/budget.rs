//! How many moves are left in this hour.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Budget {
    most: usize,
    spent: VecDeque<(Instant, usize)>,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, spent: VecDeque::new() }
    }

    pub(crate) fn left(&mut self, now: Instant) -> usize {
        while self.spent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= HOUR) {
            self.spent.pop_front();
        }
        self.most.saturating_sub(self.spent.iter().map(|(_, moves)| moves).sum())
    }

    pub(crate) fn spend(&mut self, now: Instant, moves: usize) {
        self.spent.push_back((now, moves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_counts_for_an_hour() {
        let (mut budget, start) = (Budget::new(10), Instant::now());
        assert_eq!(budget.left(start), 10);
        budget.spend(start, 4);
        budget.spend(start + HOUR / 2, 7);
        for (at, left) in [(HOUR / 2, 0), (HOUR, 3), (HOUR * 3 / 2, 10), (HOUR * 9, 10)] {
            assert_eq!(budget.left(start + at), left, "{at:?}");
        }
    }
}
