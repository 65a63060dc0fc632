//! The stream of events. An entry holds an event of one or many pods; readers see one event per pod.

use redis::{Value, cmd};

use super::reply::{RawFields, corrupt, list, read};
use super::{Store, StoreError, keys};
use model::event::{ClusterEvent, EventPosition, ObjectKind};

/// An entry may hold hundreds of events.
const ENTRIES_PER_READ: usize = 100;

impl Store {
    /// Returns the oldest first, without waiting. `"0"` starts at the oldest event.
    ///
    /// # Errors
    /// `Corrupt` if `id` is not the id of an event.
    pub async fn events_after(&self, id: &str, count: usize) -> Result<Vec<ClusterEvent>, StoreError> {
        let after = EventPosition::parse(id)
            .ok_or_else(|| corrupt("reading events", format!("{id:?} is no id of an event")))?;
        let mut from = after.entry_begins();
        let mut events = Vec::new();
        while events.len() < count {
            let asked = ENTRIES_PER_READ.min(count - events.len());
            let page = self.entries(cmd("XRANGE"), &from, "+", asked).await?;
            let Some(last) = page.last() else { break };
            from = format!("({}", last.id);
            let received = page.len();
            events.extend(
                page.into_iter().flat_map(StreamEntry::events).filter(|event| event.position() > Some(after)),
            );
            if received < asked {
                break;
            }
        }
        events.truncate(count);
        Ok(events)
    }

    pub async fn last_events(&self, count: usize) -> Result<Vec<ClusterEvent>, StoreError> {
        let mut to = "+".to_owned();
        let mut newest_first = Vec::new();
        while newest_first.len() < count {
            let asked = ENTRIES_PER_READ.min(count - newest_first.len());
            let page = self.entries(cmd("XREVRANGE"), &to, "-", asked).await?;
            let Some(last) = page.last() else { break };
            to = format!("({}", last.id);
            let received = page.len();
            newest_first.extend(page.into_iter().flat_map(|entry| entry.events().into_iter().rev()));
            if received < asked {
                break;
            }
        }
        newest_first.truncate(count);
        newest_first.reverse();
        Ok(newest_first)
    }

    /// Returns the newest event before it if it is no longer stored.
    pub async fn event_until(&self, id: &str) -> Result<Option<ClusterEvent>, StoreError> {
        let entry = id.split('.').next().unwrap_or(id);
        let mut found = self.entries(cmd("XREVRANGE"), entry, "-", 1).await?;
        Ok(found.pop().and_then(|entry| entry.events().pop()))
    }

    async fn entries(
        &self,
        mut range: redis::Cmd,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<StreamEntry>, StoreError> {
        range.arg(keys::EVENTS).arg(from).arg(to).arg("COUNT").arg(count);
        list("reading events", self.link.query(&range).await?)?.into_iter().map(StreamEntry::read).collect()
    }
}

struct StreamEntry {
    id: String,
    fields: Vec<(String, Vec<u8>)>,
}

impl StreamEntry {
    fn read(value: Value) -> Result<Self, StoreError> {
        let (id, fields): (String, RawFields) = read("reading events", value)?;
        let name = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Self { id, fields: fields.into_iter().map(|(field, value)| (name(field), value)).collect() })
    }

    fn text(&self, name: &str) -> String {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    fn events(self) -> Vec<ClusterEvent> {
        let kind = self.text("kind");
        match ObjectKind::parse(&kind) {
            Some(kind) => vec![self.single(kind)],
            None if kind == "pods" => self.batch(),
            None => Vec::new(),
        }
    }

    fn single(&self, kind: ObjectKind) -> ClusterEvent {
        ClusterEvent {
            id: self.id.clone(),
            at: self.at(),
            kind,
            object: self.text("object"),
            reason: self.text("reason"),
            name: self.text("name"),
            node: self.text("node"),
            phase: self.text("phase"),
            message: self.text("message"),
        }
    }

    /// Reads lines `uuid name node message`; a missing node is `-`.
    fn batch(&self) -> Vec<ClusterEvent> {
        let (reason, phase, at) = (self.text("reason"), self.text("phase"), self.at());
        let of_line = |(index, line): (usize, &str)| {
            let mut words = line.splitn(4, ' ').map(str::to_owned);
            let mut word = || words.next().unwrap_or_default();
            let (object, name, node, message) = (word(), word(), word(), word());
            ClusterEvent {
                id: format!("{}.{index}", self.id),
                at,
                kind: ObjectKind::Pod,
                object,
                reason: reason.clone(),
                name,
                node: if node == "-" { String::new() } else { node },
                phase: phase.clone(),
                message,
            }
        };
        self.text("pods").split('\n').enumerate().map(of_line).collect()
    }

    fn at(&self) -> model::RedisMillis {
        self.id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or_default()
    }
}
