//! The stream of what happened. An entry tells of one change, or of one that happened to many pods in one step; readers
//! see an event for each pod.

use redis::{Value, cmd};

use super::reply::{corrupt, list, read};
use super::{Store, StoreError, keys};
use crate::event::{ClusterEvent, EventPlace, ObjectKind};

/// How many entries are read at a time: one may hold hundreds of events.
const PAGE: usize = 100;

impl Store {
    /// Up to `count` events after the one with this id (`"0"`: from the oldest kept), oldest first. Does not wait.
    ///
    /// # Errors
    /// Also when the id is none.
    pub async fn events_after(&self, id: &str, count: usize) -> Result<Vec<ClusterEvent>, StoreError> {
        let after =
            EventPlace::parse(id).ok_or_else(|| corrupt("reading events", format!("{id:?} is no id")))?;
        let mut from = after.entry_begins();
        let mut events = Vec::new();
        while events.len() < count {
            let asked = PAGE.min(count - events.len());
            let page = self.entries(cmd("XRANGE"), &from, "+", asked).await?;
            let Some(last) = page.last() else { break };
            from = format!("({}", last.id);
            let came = page.len();
            events
                .extend(page.into_iter().flat_map(Entry::events).filter(|event| event.place() > Some(after)));
            if came < asked {
                break;
            }
        }
        events.truncate(count);
        Ok(events)
    }

    /// The last `count` events, oldest first.
    pub async fn last_events(&self, count: usize) -> Result<Vec<ClusterEvent>, StoreError> {
        let mut to = "+".to_owned();
        let mut newest_first = Vec::new();
        while newest_first.len() < count {
            let asked = PAGE.min(count - newest_first.len());
            let page = self.entries(cmd("XREVRANGE"), &to, "-", asked).await?;
            let Some(last) = page.last() else { break };
            to = format!("({}", last.id);
            let came = page.len();
            newest_first.extend(page.into_iter().flat_map(|entry| entry.events().into_iter().rev()));
            if came < asked {
                break;
            }
        }
        newest_first.truncate(count);
        newest_first.reverse();
        Ok(newest_first)
    }

    async fn entries(
        &self,
        mut range: redis::Cmd,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        range.arg(keys::EVENTS).arg(from).arg(to).arg("COUNT").arg(count);
        list("reading events", self.link.query(&range).await?)?.into_iter().map(Entry::read).collect()
    }
}

/// One entry of the stream.
struct Entry {
    id: String,
    fields: Vec<(String, Vec<u8>)>,
}

impl Entry {
    fn read(value: Value) -> Result<Self, StoreError> {
        let (id, fields) = read("reading events", value)?;
        Ok(Self { id, fields })
    }

    fn text(&self, name: &str) -> String {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    /// One, or one for each pod it tells of; nothing for an entry that somebody else wrote in another form.
    fn events(self) -> Vec<ClusterEvent> {
        let kind = self.text("kind");
        match ObjectKind::parse(&kind) {
            Some(kind) => vec![self.single(kind)],
            None if kind == "pods" => self.several(),
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

    /// Lines of `uuid name node message`; the first three hold no space, and a node that is none is `-`.
    fn several(&self) -> Vec<ClusterEvent> {
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

    fn at(&self) -> crate::RedisMillis {
        self.id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or_default()
    }
}
