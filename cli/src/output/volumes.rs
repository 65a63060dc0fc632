//! Volumes as table rows and descriptions.

use common::api::VolumeView;
use common::volume::VolumeState;
use jiff::Timestamp;

use super::describe_layout::DescribeLayout;
use super::{TableRow, humanize};

impl TableRow for VolumeView {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["NAME", "SERVICE", "NODE", "STATUS", "SPACE", "AGE"]
    }

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            self.service.to_string(),
            self.node.to_string(),
            status(self).to_owned(),
            self.space.map(humanize::bytes).unwrap_or_default(),
            humanize::age(&self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        format!("volume/{}", self.name)
    }
}

fn status(volume: &VolumeView) -> &'static str {
    match (volume.state, volume.in_use) {
        (VolumeState::Removing, _) => "removing",
        (VolumeState::Bound, true) => "used",
        (VolumeState::Bound, false) => "unused",
    }
}

fn meaning(volume: &VolumeView) -> &'static str {
    match (volume.state, volume.in_use) {
        (VolumeState::Removing, _) => "its node removes the data; no pod that needs it starts before",
        (VolumeState::Bound, true) => "its replica runs only on its node",
        (VolumeState::Bound, false) => {
            "kept until `kubeleet volume rm`, or until its replica is wanted again"
        }
    }
}

/// Describes a volume.
pub(crate) fn describe(volume: &VolumeView, now: Timestamp) -> String {
    let mut layout = DescribeLayout::default();
    layout
        .field("Name", volume.name.as_str())
        .field("Status", format!("{}: {}", status(volume), meaning(volume)))
        .field("Service", volume.service.as_str())
        .field("Source", volume.source.as_str())
        .field("Replica", volume.replica.to_string())
        .field("Node", volume.node.as_str())
        .field("Space", volume.space.map(humanize::bytes).unwrap_or_default())
        .field("Created", format!("{} ({} ago)", volume.created_at, humanize::age(&volume.created_at, now)));
    layout.section("Keys in Redis", [format!("redis-cli HGETALL volume:{}", volume.name)]);
    layout.finish()
}
