//! The stream of decisions: why pods were placed where they are. Nothing depends on an entry.

use redis::{Value, cmd};

use crate::reply::{RawFields, list, read};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::PodId;

const MAX_ENTRIES: usize = 5_000;
const ENTRIES_PER_READ: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDecision {
    pub pod: PodId,
    /// JSON, as the scheduler that decided wrote it.
    pub decision: String,
}

impl Store {
    /// Some may be missing after an error.
    pub async fn note_decisions(&self, decisions: &[StoredDecision]) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        for StoredDecision { pod, decision } in decisions {
            let add = pipe.cmd("XADD").arg(keys::DECISIONS).arg("MAXLEN").arg("~").arg(MAX_ENTRIES).arg("*");
            add.arg("pod").arg(pod.as_str()).arg("decision").arg(decision).ignore();
        }
        self.link.pipeline(&pipe).await
    }

    /// The last decision about the pod, which was created at `since`. `None` if it is not kept.
    pub async fn decision_about(
        &self,
        pod: &PodId,
        since: RedisMillis,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut to = "+".to_owned();
        loop {
            let mut range = cmd("XREVRANGE");
            range.arg(keys::DECISIONS).arg(&to).arg(since).arg("COUNT").arg(ENTRIES_PER_READ);
            let page: Vec<Value> = list("reading decisions", self.link.query(&range).await?)?;
            let count = page.len();
            for entry in page {
                let (id, fields): (String, RawFields) = read("reading decisions", entry)?;
                let field =
                    |name: &[u8]| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
                if field(b"pod").is_some_and(|found| found == pod.as_str().as_bytes()) {
                    return Ok(field(b"decision").cloned());
                }
                to = format!("({id}");
            }
            if count < ENTRIES_PER_READ {
                return Ok(None);
            }
        }
    }
}
