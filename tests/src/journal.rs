//! The states that each service of a client may have after the responses.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Keyspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenService {
    pub replicas: u64,
    /// Stored in a label.
    pub version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Put(WrittenService),
    Scale(u64),
    Delete,
}

impl Write {
    fn applied(self, before: Option<WrittenService>) -> Option<WrittenService> {
        match self {
            Self::Put(service) => Some(service),
            Self::Scale(replicas) => before.map(|service| WrittenService { replicas, ..service }),
            Self::Delete => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 200, 201, or a confirmed deletion.
    Durable,
    /// 202.
    Stored,
    Refused,
    /// No response, or one that leaves it open.
    Unknown,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WriteAnswers {
    pub durable: u64,
    pub stored: u64,
    pub unknown: u64,
}

impl WriteAnswers {
    pub fn since(self, before: Self) -> Self {
        Self {
            durable: self.durable - before.durable,
            stored: self.stored - before.stored,
            unknown: self.unknown - before.unknown,
        }
    }
}

#[derive(Debug, Default)]
struct JournalEntry {
    possible: Vec<Option<WrittenService>>,
    /// The write may still be carried out.
    open: bool,
    versions: u64,
}

#[derive(Debug, Default)]
pub struct Journal {
    entries: BTreeMap<String, JournalEntry>,
    pub answers: WriteAnswers,
}

#[derive(Debug, Default)]
pub struct Audit {
    pub lost: Vec<String>,
    /// Lost writes that were answered with 202.
    pub forgotten: u64,
}

impl Journal {
    /// Returns the newest state and the write's number; `None` while an earlier write is open.
    pub fn open(&mut self, name: &str) -> Option<(Option<WrittenService>, u64)> {
        let entry = self.entries.entry(name.to_owned()).or_default();
        if entry.open {
            return None;
        }
        entry.open = true;
        entry.versions += 1;
        Some((entry.possible.last().copied().flatten(), entry.versions))
    }

    pub fn answered(&mut self, name: &str, write: Write, answer: Answer) {
        match answer {
            Answer::Durable => self.answers.durable += 1,
            Answer::Stored => self.answers.stored += 1,
            Answer::Unknown => self.answers.unknown += 1,
            Answer::Refused => {}
        }
        let entry = self.entries.get_mut(name).expect("it was opened");
        if entry.possible.is_empty() {
            entry.possible.push(None);
        }
        let after: Vec<Option<WrittenService>> =
            entry.possible.iter().map(|before| write.applied(*before)).collect();
        match answer {
            Answer::Durable => entry.possible = after,
            Answer::Stored | Answer::Unknown => entry.possible.extend(after),
            Answer::Refused => {}
        }
        let mut seen = Vec::new();
        entry.possible.reverse();
        entry.possible.retain(|service| {
            let is_new = !seen.contains(service);
            seen.push(*service);
            is_new
        });
        entry.possible.reverse();
        entry.open = answer == Answer::Unknown;
    }

    /// Without open writes. The found state is the known one from then on.
    pub fn audit(&mut self, keyspace: &Keyspace) -> Audit {
        let mut audit = Audit::default();
        for (name, entry) in &mut self.entries {
            if entry.possible.is_empty() {
                continue;
            }
            let found = stored(keyspace, name);
            let newest = entry.possible.last().copied().flatten();
            if !entry.possible.contains(&found) {
                audit.lost.push(format!("{name} is {found:?}, expected one of {:?}", entry.possible));
            } else if !entry.open && found != newest {
                audit.forgotten += 1;
            }
            entry.possible = vec![found];
            entry.open = false;
        }
        audit
    }
}

fn stored(keyspace: &Keyspace, name: &str) -> Option<WrittenService> {
    let field = |field: &str| keyspace.field(&format!("service:{name}"), field);
    if field("state") != "active" {
        return None;
    }
    let fields: Value = serde_json::from_str(&field("fields")).unwrap_or_default();
    let version = fields["labels"]["v"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(WrittenService { replicas: field("replicas").parse().unwrap_or(0), version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::KeyEntry;

    const ONE: WrittenService = WrittenService { replicas: 1, version: 1 };
    const TWO: WrittenService = WrittenService { replicas: 2, version: 2 };

    fn cluster(service: Option<WrittenService>) -> Keyspace {
        let fields = service.map(|service| {
            let stored = format!(r#"{{"labels":{{"v":"{}"}}}}"#, service.version);
            [("state", "active".to_owned()), ("replicas", service.replicas.to_string()), ("fields", stored)]
        });
        let hash = |fields: [(&str, String); 3]| {
            KeyEntry::Hash(fields.map(|(name, value)| (name.to_owned(), value.into_bytes())).into())
        };
        Keyspace::with(fields.map(|fields| ("service:web", hash(fields))))
    }

    /// Writes with their responses, the final state, and the numbers of lost and forgotten writes.
    type Case<'a> = (&'a [(Write, Answer)], Option<WrittenService>, usize, u64);

    #[test]
    fn a_service_in_no_state_that_the_responses_allow_is_lost() {
        use Answer::{Durable, Refused, Stored, Unknown};
        use Write::{Delete, Put, Scale};
        let scaled = Some(WrittenService { replicas: 5, version: 1 });
        let table: &[Case<'_>] = &[
            (&[(Put(ONE), Durable)], Some(ONE), 0, 0),
            (&[(Put(ONE), Durable)], None, 1, 0),
            (&[(Put(ONE), Durable)], Some(TWO), 1, 0),
            (&[(Put(ONE), Durable), (Delete, Durable)], None, 0, 0),
            (&[(Put(ONE), Durable), (Delete, Durable)], Some(ONE), 1, 0),
            (&[(Put(ONE), Durable), (Scale(5), Durable)], scaled, 0, 0),
            (&[(Put(ONE), Durable), (Scale(5), Durable)], Some(ONE), 1, 0),
            (&[(Put(ONE), Stored)], Some(ONE), 0, 0),
            (&[(Put(ONE), Stored)], None, 0, 1),
            (&[(Put(ONE), Stored)], Some(TWO), 1, 0),
            (&[(Put(ONE), Durable), (Put(TWO), Stored)], Some(ONE), 0, 1),
            (&[(Put(ONE), Durable), (Put(TWO), Stored)], None, 1, 0),
            (&[(Put(ONE), Stored), (Put(TWO), Durable)], Some(ONE), 1, 0),
            (&[(Put(ONE), Stored), (Scale(5), Durable)], scaled, 0, 0),
            (&[(Put(ONE), Durable), (Put(TWO), Refused)], Some(ONE), 0, 0),
            (&[(Put(ONE), Durable), (Put(TWO), Refused)], Some(TWO), 1, 0),
            (&[(Put(ONE), Durable), (Put(TWO), Unknown)], Some(ONE), 0, 0),
            (&[(Put(ONE), Durable), (Put(TWO), Unknown)], Some(TWO), 0, 0),
            (&[(Put(ONE), Durable), (Put(TWO), Unknown)], None, 1, 0),
        ];
        for (writes, found, lost, forgotten) in table {
            let mut journal = Journal::default();
            for (write, answer) in *writes {
                assert!(journal.open("web").is_some(), "{writes:?}");
                journal.answered("web", *write, *answer);
            }
            let audit = journal.audit(&cluster(*found));
            assert_eq!((audit.lost.len(), audit.forgotten), (*lost, *forgotten), "{writes:?}: {audit:?}");
            assert!(journal.audit(&cluster(*found)).lost.is_empty(), "{writes:?}");
        }
    }

    #[test]
    fn a_service_with_an_open_write_cannot_be_written() {
        let mut journal = Journal::default();
        assert_eq!(journal.open("web"), Some((None, 1)));
        assert_eq!(journal.open("web"), None);
        journal.answered("web", Write::Put(ONE), Answer::Unknown);
        assert_eq!(journal.open("web"), None);
        journal.audit(&cluster(Some(ONE)));
        assert_eq!(journal.open("web"), Some((Some(ONE), 2)));
    }
}
