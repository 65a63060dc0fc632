//! Volumes as table rows and descriptions.

use api_types::{VolumeCondition, VolumeView};
use jiff::Timestamp;
use model::service::volume::VolumeState;
use model::spec::VolumeKind;

use crate::describe_layout::DescribeLayout;
use crate::{TableRow, Titles, humanize};

impl TableRow for VolumeView {
    const TITLES: Titles = &["NAME", "KIND", "SERVICE", "NODE", "STATUS", "SPACE", "AGE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            self.kind.as_str().to_owned(),
            self.service.to_string(),
            self.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            status(self).to_owned(),
            space(self),
            humanize::age(&self.created_at, now),
        ]
    }

    fn name(&self) -> String {
        format!("volume/{}", self.name)
    }
}

fn status(volume: &VolumeView) -> &'static str {
    match (volume.condition, volume.state, volume.in_use) {
        (VolumeCondition::Conflict, ..) => "conflict",
        (VolumeCondition::Lost, ..) => "lost",
        (VolumeCondition::Former, ..) => "former",
        (VolumeCondition::Good, VolumeState::Removing, _) => "removing",
        (VolumeCondition::Good, VolumeState::Bound, true) => "used",
        (VolumeCondition::Good, VolumeState::Bound, false) => "unused",
    }
}

fn space(volume: &VolumeView) -> String {
    match (volume.used.map(humanize::bytes), volume.space.map(humanize::bytes)) {
        (Some(used), Some(space)) => format!("{used}/{space}"),
        (None, Some(space)) => space,
        (_, None) => String::new(),
    }
}

fn meaning(volume: &VolumeView) -> &'static str {
    match (volume.condition, volume.state, volume.in_use) {
        (VolumeCondition::Conflict, ..) => "no pod gets it until `kubeleet volume bind` chooses a copy",
        (VolumeCondition::Lost, ..) => "no pod gets it until `kubeleet volume rm` begins anew",
        (VolumeCondition::Former, ..) => {
            "a copy that is not the volume any more: `kubeleet volume bind` makes it the volume again"
        }
        (VolumeCondition::Good, VolumeState::Removing, _) => {
            "its node removes the data; no pod that needs it starts before"
        }
        (VolumeCondition::Good, VolumeState::Bound, true) if volume.kind == VolumeKind::Shared => {
            "in the directory that nodes share"
        }
        (VolumeCondition::Good, VolumeState::Bound, true) => "its replica runs only on its node",
        (VolumeCondition::Good, VolumeState::Bound, false) => {
            "kept until `kubeleet volume rm`, or until it is wanted again"
        }
    }
}

pub fn describe(volume: &VolumeView, now: Timestamp) -> String {
    let mut layout = DescribeLayout::default();
    layout
        .field("Name", volume.name.as_str())
        .field("Status", format!("{}: {}", status(volume), meaning(volume)))
        .field("Service", volume.service.as_str())
        .field("Source", volume.source.as_str())
        .field("Kind", volume.kind.as_str())
        .field("Replica", volume.replica.map(|replica| replica.to_string()).unwrap_or_default())
        .field("Node", volume.node.as_ref().map(ToString::to_string).unwrap_or_default())
        .field("Engine id", volume.engine_id.as_deref().unwrap_or_default())
        .field("Space", space(volume))
        .field("Problem", volume.problem.as_deref().unwrap_or_default())
        .field("Created", format!("{} ({} ago)", volume.created_at, humanize::age(&volume.created_at, now)));
    layout.section("Keys in Redis", [format!("redis-cli HGETALL volume:{}", volume.name)]);
    layout.finish()
}
