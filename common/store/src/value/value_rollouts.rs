//! Changed secrets and configs whose services must still be restarted. The script that stores a version notes
//! the change, so a failover loses both or none.

use redis::cmd;

use crate::reply::word;
use crate::scripts::rollout_done;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::ValueName;
use model::value::ValueKind;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRollout {
    pub kind: ValueKind,
    pub name: ValueName,
    pub version: u64,
    pub at: RedisMillis,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValueRolloutNote {
    value: String,
    seen: String,
}

impl ValueRolloutNote {
    pub fn rollout(&self) -> Option<ValueRollout> {
        let (kind, name) = self.value.split_once('/')?;
        let kind = [ValueKind::Secret, ValueKind::Config].into_iter().find(|one| one.as_str() == kind)?;
        let (version, at) = self.seen.split_once(' ')?;
        Some(ValueRollout {
            kind,
            name: ValueName::new(name).ok()?,
            version: version.parse().ok()?,
            at: at.parse().ok()?,
        })
    }
}

impl Store {
    pub async fn value_rollout_notes(&self) -> Result<Vec<ValueRolloutNote>, StoreError> {
        let fields: Vec<(Vec<u8>, Vec<u8>)> = self.link.query(cmd("HGETALL").arg(keys::ROLLOUTS)).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(fields
            .into_iter()
            .map(|(value, seen)| ValueRolloutNote { value: text(value), seen: text(seen) })
            .collect())
    }

    /// Keeps a note that was rewritten.
    pub async fn forget_value_rollout(&self, note: &ValueRolloutNote) -> Result<(), StoreError> {
        let done =
            rollout_done::Head { rollouts: keys::ROLLOUTS, value: &note.value[..], seen: &note.seen[..] };
        word("forgetting a change of a secret or config", self.link.script(&done.call()).await?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_another_program_is_no_change() {
        let read =
            |value: &str, seen: &str| ValueRolloutNote { value: value.into(), seen: seen.into() }.rollout();
        let expected = ValueRollout {
            kind: ValueKind::Config,
            name: ValueName::new("app.conf").unwrap(),
            version: 3,
            at: 17,
        };
        assert_eq!(read("config/app.conf", "3 17"), Some(expected));
        for (value, seen) in
            [("app.conf", "3 17"), ("volume/a", "3 17"), ("config/a b", "3 17"), ("config/a", "3")]
        {
            assert_eq!(read(value, seen), None, "{value} {seen}");
        }
    }
}
