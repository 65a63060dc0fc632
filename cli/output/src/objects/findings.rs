//! Findings of `cluster check` as a table.

use api_types::FindingView;
use jiff::Timestamp;

use crate::{TableRow, Titles};

impl TableRow for FindingView {
    const TITLES: Titles = &["KEY", "PROBLEM", "REPAIR"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let repair = if self.repaired { "repaired".to_owned() } else { self.repair.clone() };
        vec![self.key.clone(), self.problem.clone(), repair]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}
