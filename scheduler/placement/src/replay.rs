//! Makes a stored decision again, by the code that decides and explains.
//!
//! Tests: tests::recorded

use model::ids::NodeName;

use crate::decision::{Outcome, decide};
use crate::explain::{NodeEvaluation, explain};
use crate::record::DecisionRecord;

impl DecisionRecord {
    /// The node that [`decide`] chooses by these facts.
    pub fn replay(&self) -> Option<NodeName> {
        let (snapshot, policy, pod) = self.facts();
        let decided = decide(&snapshot, self.at, &policy, &[pod]).pop()?;
        match decided.outcome {
            Outcome::Place(target) => Some(target.name.clone()),
            Outcome::Unschedulable { .. } => None,
        }
    }

    /// The nodes that are stored, as [`explain`](crate::explain) shows them.
    pub fn explain(&self) -> Vec<NodeEvaluation> {
        let (snapshot, policy, pod) = self.facts();
        explain(&snapshot, self.at, &policy, &pod)
    }
}
