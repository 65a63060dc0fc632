//! The stream of what happened.

use redis::{Value, cmd};

use super::reply::{list, read};
use super::{Store, StoreError, keys};
use crate::event::{ClusterEvent, ObjectKind};

impl Store {
    /// Up to `count` events after the one with this id (`"0"`: from the oldest kept), oldest first. Does not wait.
    pub async fn events_after(&self, id: &str, count: usize) -> Result<Vec<ClusterEvent>, StoreError> {
        let mut range = cmd("XRANGE");
        range.arg(keys::EVENTS).arg(format!("({id}")).arg("+").arg("COUNT").arg(count);
        self.read_events(&range).await
    }

    /// The last `count` events, oldest first.
    pub async fn last_events(&self, count: usize) -> Result<Vec<ClusterEvent>, StoreError> {
        let mut range = cmd("XREVRANGE");
        range.arg(keys::EVENTS).arg("+").arg("-").arg("COUNT").arg(count);
        let mut events = self.read_events(&range).await?;
        events.reverse();
        Ok(events)
    }

    async fn read_events(&self, range: &redis::Cmd) -> Result<Vec<ClusterEvent>, StoreError> {
        let entries = list("reading events", self.link.query(range).await?)?;
        entries
            .into_iter()
            .map(read_event)
            .collect::<Result<Vec<_>, _>>()
            .map(|e| e.into_iter().flatten().collect())
    }
}

/// None for an entry that somebody else wrote in another form.
fn read_event(entry: Value) -> Result<Option<ClusterEvent>, StoreError> {
    let (id, fields): (String, Vec<(String, Vec<u8>)>) = read("reading events", entry)?;
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name);
        found.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    let Some(kind) = ObjectKind::parse(&field("kind")) else { return Ok(None) };
    let at = id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or_default();
    Ok(Some(ClusterEvent {
        at,
        kind,
        object: field("object"),
        reason: field("reason"),
        name: field("name"),
        node: field("node"),
        phase: field("phase"),
        message: field("message"),
        id,
    }))
}
