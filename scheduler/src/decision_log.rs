//! Keeps some of a scheduler's decisions for people: all of them while there are few, and a sample of many.
//!
//! To record a decision, every node is judged once more, so their number is bounded by the nodes, too. They
//! are written after the pods are assigned, beside the next reads: nothing waits for them.
//!
//! Tests: beside the code, tests::placing

use std::collections::HashMap;
use std::time::Instant;

use model::ids::PodId;
use placement::DecisionRecord;
use store::{Store, StoredDecision};

const MAX_PER_SECOND: usize = 50;
/// Half a percent of a core.
const MAX_NODES_PER_SECOND: usize = 25_000;

#[derive(Default)]
pub(crate) struct DecisionLog {
    allowance: f64,
    filled_at: Option<Instant>,
    /// Not yet assigned.
    decided: HashMap<PodId, DecisionRecord>,
    unwritten: Vec<StoredDecision>,
}

impl DecisionLog {
    /// Returns the indices of pods of a batch, ascending, whose decisions are to be recorded.
    pub(crate) fn sample(&mut self, now: Instant, pods: usize, nodes: usize) -> Vec<usize> {
        let rate = (MAX_NODES_PER_SECOND / nodes.max(1)).clamp(1, MAX_PER_SECOND) as f64;
        let elapsed = self.filled_at.map_or(1.0, |at| now.duration_since(at).as_secs_f64());
        self.filled_at = Some(now);
        self.allowance = (self.allowance + elapsed * rate).min(rate);
        let count = pods.min(self.allowance as usize);
        self.allowance -= count as f64;
        (0..count).map(|at| at * pods / count).collect()
    }

    /// Replaces those of the round before.
    pub(crate) fn decided(&mut self, records: impl Iterator<Item = (PodId, DecisionRecord)>) {
        self.decided.clear();
        self.decided.extend(records);
    }

    pub(crate) fn assigned(&mut self, pod: &PodId) {
        let Some(record) = self.decided.remove(pod) else { return };
        let decision = record.to_json();
        self.unwritten.extend(decision.map(|decision| StoredDecision { pod: pod.clone(), decision }));
    }

    /// Those of assigned pods are lost if the write fails.
    pub(crate) fn write(&mut self, store: &Store) -> impl Future<Output = ()> + use<> {
        let (decisions, store) = (std::mem::take(&mut self.unwritten), store.clone());
        async move {
            if decisions.is_empty() {
                return;
            }
            if let Err(error) = store.note_decisions(&decisions).await {
                tracing::debug!(%error, "{} decisions are not kept", decisions.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn few_decisions_are_all_kept_and_many_are_sampled() {
        let (mut log, start) = (DecisionLog::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(log.sample(start, 3, 10), [0, 1, 2]);
        assert_eq!(log.sample(start, 0, 10), [0; 0]);
        assert_eq!(log.sample(start, 94, 10).len(), 47, "what is left of the first second");
        assert_eq!(log.sample(at(10), 100, 10), [0; 0]);
        assert_eq!(log.sample(at(50), 100, 10), [0, 50]);
        assert_eq!(log.sample(at(10_000), 1_000, 10).len(), 50, "nothing is saved up");
        let mut log = DecisionLog::default();
        assert_eq!(log.sample(start, 1_000, 5_000), [0, 200, 400, 600, 800]);
        assert_eq!(DecisionLog::default().sample(start, 10, 1_000_000), [0]);
    }
}
