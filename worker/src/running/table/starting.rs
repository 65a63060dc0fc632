//! Starting pods: their payload is in the in-flight list (`rq`), and one start works on it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use model::ids::{AssignmentId, PodId};
use model::pod::payload::Payload;
use tokio::sync::Notify;

pub(crate) enum Admission {
    /// Notified when Redis must be asked again.
    Started(Arc<Notify>),
    Duplicate,
}

struct Starting {
    raw: Bytes,
    assignment: Option<AssignmentId>,
    /// The in-flight list must be swept when this start ends.
    has_duplicate: bool,
    /// The pod may have to stop, or may have moved.
    recheck: Arc<Notify>,
    stop_requested: bool,
}

#[derive(Default)]
pub(super) struct Starts {
    starts: HashMap<PodId, Starting>,
}

impl Starts {
    pub(super) fn admit(&mut self, payload: &Payload) -> Admission {
        if self.note_duplicate(&payload.id) {
            return Admission::Duplicate;
        }
        let recheck = Arc::new(Notify::new());
        let starting = Starting {
            raw: payload.raw.clone(),
            assignment: None,
            has_duplicate: false,
            recheck: recheck.clone(),
            stop_requested: false,
        };
        self.starts.insert(payload.id.clone(), starting);
        Admission::Started(recheck)
    }

    pub(super) fn note_duplicate(&mut self, pod: &PodId) -> bool {
        let starting = self.starts.get_mut(pod);
        starting.map(|starting| starting.has_duplicate = true).is_some()
    }

    pub(super) fn release(&mut self, pod: &PodId) -> bool {
        self.starts.remove(pod).is_some_and(|starting| starting.has_duplicate)
    }

    pub(super) fn contains(&self, pod: &PodId) -> bool {
        self.starts.contains_key(pod)
    }

    pub(super) fn has_payload(&self, raw: &Bytes) -> bool {
        self.starts.values().any(|starting| starting.raw == *raw)
    }

    pub(super) fn set_assignment(&mut self, pod: &PodId, assignment: &AssignmentId) {
        if let Some(starting) = self.starts.get_mut(pod) {
            starting.assignment = Some(assignment.clone());
        }
    }

    pub(super) fn is_starting_as(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.starts.get(pod).is_some_and(|starting| starting.assignment.as_ref() == Some(assignment))
    }

    pub(super) fn assignments(&self) -> impl Iterator<Item = (&PodId, &AssignmentId)> {
        self.starts.iter().filter_map(|(pod, starting)| Some((pod, starting.assignment.as_ref()?)))
    }

    pub(super) fn is_stop_requested(&self, pod: &PodId) -> bool {
        self.starts.get(pod).is_some_and(|starting| starting.stop_requested)
    }

    pub(super) fn request_stop(&mut self, pod: &PodId) -> bool {
        let Some(starting) = self.starts.get_mut(pod) else { return false };
        if !starting.stop_requested {
            starting.stop_requested = true;
            starting.recheck.notify_one();
        }
        true
    }

    pub(super) fn mark_foreign(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        match self.starts.get(pod) {
            Some(starting) if starting.assignment.as_ref() == Some(assignment) => {
                starting.recheck.notify_one();
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn recheck_all(&self) {
        for starting in self.starts.values() {
            starting.recheck.notify_one();
        }
    }
}
