//! What the client was told: for each service, what it may be according to the answers.

use std::collections::BTreeMap;

use kubeleet_tests::Keyspace;
use serde_json::Value;

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
    pub durable: u64,
    pub stored: u64,
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
