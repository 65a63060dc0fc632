//! When nodes are balanced because one has joined, or came back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use model::ids::NodeName;

/// Each waits for twice as long as the one before, for services that are being updated.
const MAX_FRUITLESS: u32 = 6;

pub(crate) struct JoinTrigger {
    calm: Duration,
    /// `None` before the first look: a node may have joined before it.
    usable: Option<BTreeSet<NodeName>>,
    due: Option<Instant>,
    fruitless: u32,
}

impl JoinTrigger {
    pub(crate) fn new(calm: Duration) -> Self {
        Self { calm, usable: None, due: None, fruitless: 0 }
    }

    /// `usable` may get pods. Any change puts a balance off: machines often come and go together.
    pub(crate) fn observe(&mut self, now: Instant, usable: BTreeSet<NodeName>) {
        let has_joined = self.usable.as_ref().is_none_or(|before| !usable.is_subset(before));
        let has_changed = self.usable.as_ref() != Some(&usable);
        if has_joined || (has_changed && self.due.is_some()) {
            self.due = Some(now + self.calm);
            self.fruitless = 0;
        }
        self.usable = Some(usable);
    }

    pub(crate) fn forget(&mut self) {
        self.usable = None;
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// It goes on until a plan has no moves. `is_calm`: no service had to be left out for now.
    pub(crate) fn ran(&mut self, now: Instant, moves: usize, is_calm: bool) {
        self.fruitless = if moves > 0 { 0 } else { self.fruitless + 1 };
        let goes_on = moves > 0 || (!is_calm && self.fruitless <= MAX_FRUITLESS);
        self.due = goes_on.then(|| now + self.calm * 2u32.pow(self.fruitless));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Duration = Duration::from_secs(60);

    fn nodes(names: &[&str]) -> BTreeSet<NodeName> {
        names.iter().filter_map(|name| NodeName::new(*name).ok()).collect()
    }

    #[test]
    fn a_node_that_joins_makes_it_due_after_a_calm_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut trigger = JoinTrigger::new(CALM);
        trigger.observe(start, nodes(&["a"]));
        assert!(!trigger.is_due(at(59)) && trigger.is_due(at(60)), "one may have joined before");
        trigger.ran(at(60), 0, true);
        for (seconds, names) in [(70, vec!["a"]), (80, vec![]), (81, vec![])] {
            trigger.observe(at(seconds), nodes(&names));
            assert!(!trigger.is_due(at(999)), "nothing joined at {seconds}");
        }
        trigger.observe(at(100), nodes(&["a", "b"]));
        trigger.observe(at(130), nodes(&["a"]));
        assert!(!trigger.is_due(at(189)) && trigger.is_due(at(190)), "a change puts it off");
    }

    #[test]
    fn it_goes_on_while_pods_move_and_for_a_while_when_services_are_left_out() {
        let start = Instant::now();
        let mut trigger = JoinTrigger::new(CALM);
        trigger.observe(start, nodes(&["a"]));
        trigger.ran(start, 3, false);
        assert!(!trigger.is_due(start) && trigger.is_due(start + CALM));
        for looks in 1..=MAX_FRUITLESS {
            trigger.ran(start, 0, false);
            let wait = CALM * 2u32.pow(looks);
            assert!(!trigger.is_due(start + wait / 2) && trigger.is_due(start + wait));
        }
        trigger.ran(start, 0, false);
        assert!(!trigger.is_due(start + CALM * 9_999), "it ends");
        trigger.observe(start, nodes(&["a", "b"]));
        assert!(trigger.is_due(start + CALM));
    }
}
