//! Garbage on the disks of nodes as table rows.

use jiff::Timestamp;
use model::node::usage::GarbageView;

use crate::{TableRow, Titles, humanize};

impl TableRow for GarbageView {
    const TITLES: Titles =
        &["NODE", "DISK", "USED", "KEPT LOGS", "IMAGES NOT NEEDED", "REMOVED", "NOT IN A REGISTRY"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let used = self.disk_total_bytes.saturating_sub(self.disk_available_bytes);
        let percent = match self.disk_total_bytes {
            0 => String::new(),
            total => format!("{:.0}%", used as f64 * 100.0 / total as f64),
        };
        vec![
            self.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            humanize::bytes(self.disk_total_bytes),
            percent,
            format!("{} ({})", self.kept_logs, humanize::bytes(self.kept_log_bytes)),
            self.images.join(" "),
            self.removed.join(" "),
            self.unpullable_images.join(" "),
        ]
    }

    fn name(&self) -> String {
        format!("node/{}", self.node.as_ref().map(ToString::to_string).unwrap_or_default())
    }
}
