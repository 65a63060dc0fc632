//! Short names for pods, given in the order in which they appear. Their uuids are random, so nothing may be decided by
//! the order of uuids: the same seed would not be the same run.

use std::collections::HashMap;

use super::view::View;

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<String, (usize, String)>,
}

impl Names {
    /// Gives names to pods that were not there before. At most one of each replica appears in one step.
    pub(super) fn learn(&mut self, view: &View) {
        let mut new: Vec<_> = view.pods.iter().filter(|(uuid, _)| !self.known.contains_key(*uuid)).collect();
        new.sort_by(|(a_id, a), (b_id, b)| (&a.service, a.replica, a_id).cmp(&(&b.service, b.replica, b_id)));
        for (uuid, pod) in new {
            let number = self.known.len();
            let name = if pod.service.is_empty() {
                uuid.clone()
            } else {
                format!("{}/{}#{number}", pod.service, pod.replica)
            };
            self.known.insert(uuid.clone(), (number, name));
        }
    }

    /// A pod that somebody is about to push.
    pub(super) fn introduce(&mut self, uuid: &str) {
        let number = self.known.len();
        self.known.entry(uuid.to_owned()).or_insert_with(|| (number, uuid.to_owned()));
    }

    pub(super) fn of(&self, uuid: &str) -> String {
        self.known.get(uuid).map_or_else(|| format!("?{uuid}"), |(_, name)| name.clone())
    }

    /// When it appeared. What has no name comes last.
    pub(super) fn order(&self, uuid: &str) -> usize {
        self.known.get(uuid).map_or(usize::MAX, |(number, _)| *number)
    }

    /// All that were ever seen.
    pub(super) fn all(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }
}
