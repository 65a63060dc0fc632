//! Events as lines of text.

use jiff::Timestamp;
use model::event::{ClusterEvent, ObjectKind};

use crate::humanize::printable;

pub fn line(event: &ClusterEvent) -> String {
    let text = format!("{}  {:<18} {}  {}", time(event), event.reason, subject(event), event.message);
    printable(&text.replace('\n', " "))
}

/// In whole seconds, UTC, from Redis' clock: events of different machines are comparable.
fn time(event: &ClusterEvent) -> String {
    let second = i64::try_from(event.at / 1000).unwrap_or(i64::MAX);
    Timestamp::from_second(second).map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

fn subject(event: &ClusterEvent) -> String {
    let mut text = match event.kind {
        // Eight characters distinguish pods, and commands accept them.
        ObjectKind::Pod => {
            let short: String = event.object.chars().take(8).collect();
            if event.name.is_empty() {
                format!("pod/{short}")
            } else {
                format!("pod/{short} of {}", event.name)
            }
        }
        kind => format!("{}/{}", kind.as_str(), event.object),
    };
    if !event.node.is_empty() && event.kind != ObjectKind::Node {
        text.push_str(&format!(" on {}", event.node));
    }
    text
}

/// Events about pods count for their service and their node.
pub fn about(events: Vec<ClusterEvent>, kind: ObjectKind, object: &str, count: usize) -> Vec<ClusterEvent> {
    let concerns = |event: &ClusterEvent| match kind {
        ObjectKind::Service => {
            event.object == object || event.kind == ObjectKind::Pod && event.name == object
        }
        ObjectKind::Node => event.kind == kind && event.object == object || event.node == object,
        ObjectKind::Pod | ObjectKind::Queue | ObjectKind::Cluster => {
            event.kind == kind && event.object == object
        }
    };
    let mut found: Vec<_> = events.into_iter().filter(concerns).collect();
    found.drain(..found.len().saturating_sub(count));
    found
}
