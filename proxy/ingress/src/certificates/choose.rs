//! Chooses the certificate for a name. Pure.
//!
//! An exact name precedes `*.` and its parent. Then valid certificates come first, then the latest expiry,
//! then the first file name.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

const WARN_BEFORE_SECONDS: u64 = 14 * 86_400;

/// In seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub not_before: u64,
    pub not_after: u64,
}

impl Validity {
    pub(super) fn seconds_left(self, now: u64) -> i64 {
        self.not_after.cast_signed().saturating_sub(now.cast_signed())
    }

    pub(super) fn is_expired(self, now: u64) -> bool {
        now > self.not_after
    }

    pub(super) fn expires_soon(self, now: u64) -> bool {
        self.seconds_left(now) < WARN_BEFORE_SECONDS.cast_signed()
    }

    pub(super) fn is_valid(self, now: u64) -> bool {
        now >= self.not_before && !self.is_expired(now)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceSubject {
    pub(super) file: String,
    pub names: Vec<String>,
    pub validity: Validity,
}

#[derive(Debug, Default)]
pub(super) struct NameTable {
    exact: HashMap<String, usize>,
    /// By the name without `*.`.
    wildcard: HashMap<String, usize>,
}

impl NameTable {
    pub(super) fn new(subjects: &[&ChoiceSubject], now: u64) -> Self {
        let mut best_first: Vec<usize> = (0..subjects.len()).collect();
        best_first.sort_by_key(|index| {
            let ChoiceSubject { file, validity, .. } = subjects[*index];
            (Reverse(validity.is_valid(now)), Reverse(validity.not_after), file)
        });
        let mut table = Self::default();
        for index in best_first {
            for name in &subjects[index].names {
                let name = name.to_ascii_lowercase();
                let (names, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut table.wildcard, parent.to_owned()),
                    None => (&mut table.exact, name),
                };
                names.entry(name).or_insert(index);
            }
        }
        table
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let wildcard = || name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        self.exact.get(&name).or_else(wildcard).copied()
    }

    pub(super) fn in_use(&self) -> BTreeSet<usize> {
        self.exact.values().chain(self.wildcard.values()).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;
    const DAY: u64 = 86_400;

    fn subject(file: &str, names: &[&str], not_before: u64, not_after: u64) -> ChoiceSubject {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ChoiceSubject { file: file.to_owned(), names, validity: Validity { not_before, not_after } }
    }

    fn chosen<'a>(subjects: &[&'a ChoiceSubject], name: &str) -> Option<&'a str> {
        NameTable::new(subjects, NOW).find(name).map(|index| subjects[index].file.as_str())
    }

    #[test]
    fn the_exact_name_goes_before_a_wildcard_which_covers_one_label() {
        let exact = subject("exact", &["a.example", "B.example"], 0, NOW + DAY);
        let wild = subject("wild", &["*.example"], 0, NOW + 9 * DAY);
        for (name, expected) in [
            ("a.example", Some("exact")),
            ("A.Example.", Some("exact")),
            ("b.example", Some("exact")),
            ("c.example", Some("wild")),
            ("x.c.example", None),
            ("x.a.example", None),
            ("example", None),
            ("*.example", Some("wild")),
            ("", None),
            (".", None),
        ] {
            assert_eq!(chosen(&[&wild, &exact], name), expected, "{name}");
        }
        assert_eq!(chosen(&[], "a.example"), None);
    }

    #[test]
    fn of_several_with_one_name_the_one_that_is_valid_longest_wins() {
        let names = &["a.example"][..];
        let short = subject("short", names, 0, NOW + DAY);
        let long = subject("long", names, 0, NOW + 2 * DAY);
        let expired = subject("expired", names, 0, NOW - 1);
        let later = subject("later", names, NOW + 1, NOW + 9 * DAY);
        let same = subject("same", names, 0, NOW + 2 * DAY);
        for (subjects, expected) in [
            (vec![&short, &long], "long"),
            (vec![&long, &short], "long"),
            (vec![&expired, &short], "short"),
            (vec![&later, &short], "short"),
            (vec![&same, &long], "long"),
            (vec![&expired], "expired"),
        ] {
            assert_eq!(chosen(&subjects, "a.example"), Some(expected), "{subjects:?}");
        }
        let other = subject("other", &["a.example", "b.example"], 0, NOW + 1);
        assert_eq!(NameTable::new(&[&short, &long, &other], NOW).in_use(), BTreeSet::from([1, 2]));
    }

    #[test]
    fn fourteen_days_before_the_end_is_soon() {
        let validity = Validity { not_before: 0, not_after: NOW + 14 * DAY };
        assert!(!validity.expires_soon(NOW) && validity.expires_soon(NOW + 1));
        assert!(!validity.is_expired(NOW + 14 * DAY) && validity.is_expired(NOW + 14 * DAY + 1));
        assert_eq!(validity.seconds_left(NOW + 15 * DAY), -(DAY as i64));
    }
}
