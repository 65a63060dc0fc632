//! Logs each unusable record in Redis once, instead of with every pass.

use std::collections::HashSet;

use model::ids::PodId;
use parking_lot::Mutex;

use crate::support::text::short_sha256;

pub(crate) const UNUSABLE_FIELDS: &str =
    "it is no hash, or its phase, node or assignment is missing or wrong";

#[derive(Default)]
pub(crate) struct BrokenRecords {
    logged: Mutex<HashSet<String>>,
}

impl BrokenRecords {
    pub(crate) fn note(&self, pod: &PodId, why: &str) {
        if self.note_once(format!("pod {pod}")) {
            tracing::warn!(
                %pod,
                "the record of a pod is broken: {why}. Its containers are left alone until the record is \
                 repaired or deleted; inspect it with `redis-cli HGETALL pod:{pod}`"
            );
        }
    }

    pub(crate) fn note_member(&self, member: &[u8], key: &str) {
        let digest = short_sha256(member);
        if self.note_once(format!("member {digest}")) {
            let bytes = member.len();
            tracing::warn!(
                bytes,
                sha256 = digest,
                "a member of {key} is not a pod and is ignored; find it with `redis-cli SMEMBERS {key}` and \
                 remove it with SREM"
            );
        }
    }

    pub(crate) fn forget(&self, pod: &PodId) {
        let mut logged = self.logged.lock();
        if !logged.is_empty() {
            logged.remove(&format!("pod {pod}"));
        }
    }

    fn note_once(&self, object: String) -> bool {
        self.logged.lock().insert(object)
    }
}
