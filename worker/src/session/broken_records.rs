//! What this node found in Redis and cannot be used, each logged once and not with every look.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use model::ids::PodId;

use crate::support::text::short_sha256;

/// What is wrong with a record that a script found broken.
pub(crate) const UNUSABLE_FIELDS: &str =
    "it is no hash, or its phase, node or assignment is missing or wrong";

/// Remembers which broken records have been logged. Holds no more than the broken objects of one node.
#[derive(Default)]
pub(crate) struct BrokenRecords {
    logged: Mutex<HashSet<String>>,
}

impl BrokenRecords {
    /// The record of a pod cannot be used: logs why, the first time.
    pub(crate) fn note(&self, pod: &PodId, why: &str) {
        if self.is_news(format!("pod {pod}")) {
            tracing::warn!(
                %pod,
                "the record of a pod is broken: {why}. What runs of this pod is left alone until the record is \
                 repaired or deleted; inspect it with `redis-cli HGETALL pod:{pod}`"
            );
        }
    }

    /// A member of `cs` is no payload: logs it, the first time, without its content.
    pub(crate) fn note_member(&self, member: &[u8], key: &str) {
        let digest = short_sha256(member);
        if self.is_news(format!("member {digest}")) {
            let bytes = member.len();
            tracing::warn!(
                bytes,
                sha256 = digest,
                "a member of {key} is not a pod and is ignored; find it with `redis-cli SMEMBERS {key}` and \
                 remove it with SREM"
            );
        }
    }

    /// The record of this pod is usable: if it breaks again, that is news.
    pub(crate) fn forget(&self, pod: &PodId) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if !logged.is_empty() {
            logged.remove(&format!("pod {pod}"));
        }
    }

    fn is_news(&self, object: String) -> bool {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(object)
    }
}
