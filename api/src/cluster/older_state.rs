//! Notices that Redis was started with an older file, restored, or lost writes in a failover: the last event
//! that this process saw is gone, though older ones exist. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use model::event::{ClusterEvent, EventPosition, ObjectKind};
use model::time::rfc3339;
use tokio::time::Instant;

use crate::first_names::first_names;

const MAX_CHANGES: usize = 1000;
const MAX_NAMES: usize = 5;
const TOLD_FOR: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(crate) struct EventMemory {
    last: Option<String>,
    changes: VecDeque<ServiceChangeEvent>,
    loss: Option<(Instant, String)>,
}

struct ServiceChangeEvent {
    position: Option<EventPosition>,
    service: String,
    message: String,
}

impl EventMemory {
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// `found` is the newest event up to the last one seen. If there is none, the stream was trimmed or
    /// emptied.
    pub(crate) fn compare(&mut self, found: Option<&ClusterEvent>) {
        let last = self.last.as_deref().and_then(EventPosition::parse);
        let Some(found) = found else { return self.last = None };
        if found.position() >= last {
            return;
        }
        let lost: Vec<ServiceChangeEvent> = {
            let kept = self.changes.iter().take_while(|change| change.position <= found.position()).count();
            self.changes.drain(kept..).collect()
        };
        self.last = Some(found.id.clone());
        if !lost.is_empty() {
            let text = sentence(found, &lost);
            tracing::error!("{text}");
            self.loss = Some((Instant::now(), text));
        }
    }

    pub(crate) fn note(&mut self, events: &[ClusterEvent]) {
        for event in events {
            self.last = Some(event.id.clone());
            // Other events of a service are consequences.
            if event.kind == ObjectKind::Service && event.reason.starts_with("Service") {
                let (service, message) = (event.object.clone(), event.message.clone());
                self.changes.push_back(ServiceChangeEvent { position: event.position(), service, message });
            }
        }
        let surplus = self.changes.len().saturating_sub(MAX_CHANGES);
        self.changes.drain(..surplus);
    }

    pub(crate) fn loss(&self) -> Option<String> {
        self.loss.as_ref().filter(|(at, _)| at.elapsed() < TOLD_FOR).map(|(_, text)| text.clone())
    }
}

fn sentence(found: &ClusterEvent, lost: &[ServiceChangeEvent]) -> String {
    let mut named: Vec<&ServiceChangeEvent> = Vec::new();
    for change in lost.iter().rev() {
        if !named.iter().any(|other| other.service == change.service) {
            named.push(change);
        }
    }
    let named = named.iter().map(|change| format!("{} ({})", change.service, change.message));
    let named: Vec<String> = named.collect();
    format!(
        "Redis went back to an older state, that of {}: it was started with an older file, restored, or a failover lost \
         writes. The last changes of these services are lost: {}; look at them, and apply them again",
        rfc3339(found.at),
        first_names(&named, MAX_NAMES)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn event(id: &str, kind: ObjectKind, object: &str, reason: &str) -> ClusterEvent {
        ClusterEvent {
            id: id.to_owned(),
            at: 1_700_000_000_000,
            kind,
            object: object.to_owned(),
            reason: reason.to_owned(),
            name: String::new(),
            node: String::new(),
            phase: String::new(),
            message: format!("of {id}"),
        }
    }

    #[test]
    fn changes_that_are_gone_after_a_restart_are_named() {
        let service = |id: &str, name: &str| event(id, ObjectKind::Service, name, "ServiceUpdated");
        let first = service("1-0", "a");
        let mut memory = EventMemory::default();
        memory.note(&[first.clone(), service("2-0", "a"), service("3-0", "late"), service("4-0", "late")]);
        memory.note(&[event("5-0", ObjectKind::Pod, "u", "Started")]);
        memory.compare(Some(&event("5-0", ObjectKind::Pod, "u", "Started")));
        assert_eq!(memory.loss(), None);
        memory.compare(Some(&first));
        let said = memory.loss().unwrap();
        assert!(said.contains("are lost: late (of 4-0), a (of 2-0); look"), "{said}");
        assert_eq!(memory.last(), Some("1-0"), "it follows the events from there");
    }

    #[test]
    fn lost_events_of_pods_and_a_stream_that_was_cut_are_no_loss() {
        let pod = |id: &str| event(id, ObjectKind::Pod, "u", "Started");
        let mut memory = EventMemory::default();
        memory.note(&[event("1-0", ObjectKind::Service, "a", "ServiceCreated"), pod("2-0"), pod("3-0")]);
        memory.compare(Some(&pod("2-0")));
        assert_eq!((memory.loss(), memory.last()), (None, Some("2-0")));
        memory.compare(None);
        assert_eq!((memory.loss(), memory.last()), (None, None));
        let of_pods = event("7-0.3", ObjectKind::Pod, "u", "Started");
        memory.note(std::slice::from_ref(&of_pods));
        memory.compare(Some(&event("7-0.5", ObjectKind::Pod, "v", "Started")));
        assert_eq!(memory.last(), Some("7-0.3"), "in the middle of an entry");
    }
}
