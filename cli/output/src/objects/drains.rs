//! Pods that leave a node as table rows.

use api_types::LeavingPodView;
use jiff::Timestamp;

use crate::{TableRow, Titles, humanize};

impl TableRow for LeavingPodView {
    const TITLES: Titles = &["POD", "STATUS", "TO", "STAYS BECAUSE"];
    const WIDE_TITLES: Titles = &["UUID"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        vec![
            format!("{}-{}", self.name, self.replica),
            self.phase.as_str().to_owned(),
            self.to.as_ref().map(ToString::to_string).unwrap_or_default(),
            humanize::shorten_message(&self.stays, 120),
            self.uuid.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("pod/{}", self.uuid)
    }
}
