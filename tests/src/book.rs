//! What a client that writes services was told: for each service, what it may be according to the answers.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Keyspace;

/// What a service shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// So many pods.
    pub replicas: u64,
    /// Counts the writes of this service; it is in a label.
    pub version: u64,
}

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// The whole service.
    Put(Wish),
    /// Only how many.
    Scale(u64),
    /// Away with it.
    Delete,
}

impl Write {
    /// What it makes of a service; none when it does nothing.
    fn applied(self, before: Option<Wish>) -> Option<Wish> {
        match self {
            Self::Put(wish) => Some(wish),
            Self::Scale(replicas) => before.map(|wish| Wish { replicas, ..wish }),
            Self::Delete => None,
        }
    }
}

/// How a write was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Stored, and it survives a failover (200, 201, or a deletion that was confirmed).
    Durable,
    /// Stored, not yet confirmed (202).
    Stored,
    /// Certainly not done.
    Refused,
    /// Nobody knows: no answer, or one that leaves it open.
    Unknown,
}

/// How many answers there were.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answers {
    /// That it is durable.
    pub durable: u64,
    /// That it is stored.
    pub stored: u64,
    /// None, or one that leaves it open.
    pub unknown: u64,
}

impl Answers {
    /// Since an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            durable: self.durable - before.durable,
            stored: self.stored - before.stored,
            unknown: self.unknown - before.unknown,
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// What it may be, the newest last.
    possible: Vec<Option<Wish>>,
    /// An answer is outstanding, or was lost: what was asked may still be done.
    open: bool,
    versions: u64,
}

/// The book.
#[derive(Debug, Default)]
pub struct Book {
    entries: BTreeMap<String, Entry>,
    /// All answers so far.
    pub answers: Answers,
}

/// What a look at the cluster found.
#[derive(Debug, Default)]
pub struct Audit {
    /// Services that are not what a durable answer said, in words.
    pub lost: Vec<String>,
    /// 202s that came to nothing.
    pub forgotten: u64,
}

impl Book {
    /// What is known of a service, unless something of it is open; then nobody may write it. Opens it.
    pub fn open(&mut self, name: &str) -> Option<(Option<Wish>, u64)> {
        let entry = self.entries.entry(name.to_owned()).or_default();
        if entry.open {
            return None;
        }
        entry.open = true;
        entry.versions += 1;
        Some((entry.possible.last().copied().flatten(), entry.versions))
    }

    /// The answer to the write of the service that was opened.
    ///
    /// # Panics
    /// When it was not.
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
        let after: Vec<Option<Wish>> = entry.possible.iter().map(|before| write.applied(*before)).collect();
        match answer {
            Answer::Durable => entry.possible = after,
            Answer::Stored | Answer::Unknown => entry.possible.extend(after),
            Answer::Refused => {}
        }
        let mut seen = Vec::new();
        entry.possible.reverse();
        entry.possible.retain(|wish| {
            !seen.contains(wish) && {
                seen.push(*wish);
                true
            }
        });
        entry.possible.reverse();
        entry.open = answer == Answer::Unknown;
    }

    /// Compares with a cluster at rest, in which nothing is under way any more; from here on that is what is known.
    pub fn audit(&mut self, keyspace: &Keyspace) -> Audit {
        let mut audit = Audit::default();
        for (name, entry) in &mut self.entries {
            if entry.possible.is_empty() {
                continue;
            }
            let found = stored(keyspace, name);
            let newest = entry.possible.last().copied().flatten();
            if !entry.possible.contains(&found) {
                audit.lost.push(format!("{name} is {found:?} and may only be one of {:?}", entry.possible));
            } else if !entry.open && found != newest {
                audit.forgotten += 1;
            }
            entry.possible = vec![found];
            entry.open = false;
        }
        audit
    }
}

fn stored(keyspace: &Keyspace, name: &str) -> Option<Wish> {
    let field = |field: &str| keyspace.field(&format!("service:{name}"), field);
    if field("state") != "active" {
        return None;
    }
    let labels: Value = serde_json::from_str(&field("labels")).unwrap_or_default();
    let version = labels["v"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(Wish { replicas: field("replicas").parse().unwrap_or(0), version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Entry;

    const ONE: Wish = Wish { replicas: 1, version: 1 };
    const TWO: Wish = Wish { replicas: 2, version: 2 };

    /// A cluster with one service, or with none.
    fn cluster(service: Option<Wish>) -> Keyspace {
        let fields = service.map(|wish| {
            let labels = format!(r#"{{"v":"{}"}}"#, wish.version);
            [("state", "active".to_owned()), ("replicas", wish.replicas.to_string()), ("labels", labels)]
        });
        let hash = |fields: [(&str, String); 3]| {
            Entry::Hash(fields.map(|(name, value)| (name.to_owned(), value.into_bytes())).into())
        };
        Keyspace::with(fields.map(|fields| ("service:web", hash(fields))))
    }

    /// Writes and their answers, what is there in the end, how many are lost, how many 202s came to nothing.
    type Case<'a> = (&'a [(Write, Answer)], Option<Wish>, usize, u64);

    #[test]
    fn what_a_durable_answer_said_is_lost_when_it_is_not_there() {
        use Answer::{Durable, Refused, Stored, Unknown};
        use Write::{Delete, Put, Scale};
        let scaled = Some(Wish { replicas: 5, version: 1 });
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
        for (writes, there, lost, forgotten) in table {
            let mut book = Book::default();
            for (write, answer) in *writes {
                assert!(book.open("web").is_some(), "{writes:?}");
                book.answered("web", *write, *answer);
            }
            let audit = book.audit(&cluster(*there));
            assert_eq!((audit.lost.len(), audit.forgotten), (*lost, *forgotten), "{writes:?}: {audit:?}");
            // What was found is what is known from here on.
            assert!(book.audit(&cluster(*there)).lost.is_empty(), "{writes:?}");
        }
    }

    #[test]
    fn nobody_writes_a_service_of_which_something_is_open() {
        let mut book = Book::default();
        assert_eq!(book.open("web"), Some((None, 1)));
        assert_eq!(book.open("web"), None);
        book.answered("web", Write::Put(ONE), Answer::Unknown);
        assert_eq!(book.open("web"), None);
        book.audit(&cluster(Some(ONE)));
        assert_eq!(book.open("web"), Some((Some(ONE), 2)));
    }
}
