//! What services were before: the specifications of their former generations, so that a change can be undone.
//!
//! `history:<service>` has a field for each of the last ten: "<time ms> <fingerprint>" and, on the lines
//! below, the specification. `service_put` writes it. The current generation is in the service itself, so a
//! service that was never changed has no such key. It only informs: a failover may lose the latest entry, and
//! nothing else depends on it.

use redis::cmd;

use super::keys;
use super::reply::{RawFields, read};
use super::stored_spec::SpecFile;
use super::{Store, StoreError};
use crate::RedisMillis;
use crate::ids::ServiceName;
use crate::spec::PodSpec;

/// A former generation of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct FormerGeneration {
    /// Its number: the generation that the service had.
    pub generation: u64,
    /// Until when it was wanted.
    pub until: RedisMillis,
    /// The fingerprint of its specification; empty if a version without fingerprints stored it.
    pub fingerprint: String,
    /// Specification of its pods.
    pub pod: PodSpec,
}

impl FormerGeneration {
    /// Reads a field of the history. `None` if it is none that this version can read: written by hand, or of
    /// a newer version.
    fn read(generation: &[u8], value: &[u8]) -> Option<Self> {
        let generation = std::str::from_utf8(generation).ok()?.parse().ok()?;
        let (head, text) = std::str::from_utf8(value).ok()?.split_once('\n')?;
        let mut words = head.split(' ');
        let until = words.next()?.parse().ok()?;
        let fingerprint = words.next().unwrap_or_default().to_owned();
        Some(Self { generation, until, fingerprint, pod: SpecFile::read(text.as_bytes()).ok()? })
    }
}

impl Store {
    /// Returns the former generations of a service, the newest first; at most ten. Two never have the same
    /// specification, and none has that of the current generation. What cannot be read is left out.
    ///
    /// # Errors
    /// `WrongType` if another program has written its key; see [`StoreError`].
    pub async fn former_generations(&self, name: &ServiceName) -> Result<Vec<FormerGeneration>, StoreError> {
        let reply = self.link.query(cmd("HGETALL").arg(keys::history(name))).await?;
        let fields: RawFields = read(&format!("reading the history of service {name}"), reply)?;
        let mut former: Vec<FormerGeneration> =
            fields.iter().filter_map(|(field, value)| FormerGeneration::read(field, value)).collect();
        former.sort_unstable_by_key(|one| std::cmp::Reverse(one.generation));
        Ok(former)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_and_what_is_none_is_left_out() {
        let text = r#"{"service":"web","pod":{"containers":[{"image":"nginx:1"}]}}"#;
        let read = |field: &str, value: &str| FormerGeneration::read(field.as_bytes(), value.as_bytes());
        let entry = read("3", &format!("1700000000000 ab12\n{text}")).unwrap();
        assert_eq!((entry.generation, entry.until, entry.pod.image()), (3, 1_700_000_000_000, "nginx:1"));
        let later = read("3", &format!("1 ab12 by=alice\n{text}")).unwrap();
        assert_eq!(later.until, 1, "a later version may add words");
        for (field, value) in [
            ("x", format!("1 ab\n{text}")),
            ("-1", format!("1 ab\n{text}")),
            ("3", text.to_owned()),
            ("3", format!("soon ab\n{text}")),
            ("3", "1 ab\nno JSON".to_owned()),
            ("3", "1 ab\n{\"version\":99}".to_owned()),
            ("3", String::new()),
        ] {
            assert_eq!(read(field, &value), None, "{field} {value}");
        }
    }
}
