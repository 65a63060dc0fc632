//! Labels of a node: those of `KUBELEET_LABELS`, and over them those of an operator.

use std::collections::BTreeMap;

use document::json_pointer;

use crate::spec::Violation;

pub const MAX_LABELS: usize = 64;
const MAX_LENGTH: usize = 63;

pub type Labels = BTreeMap<String, String>;

/// `None` hides a label of `KUBELEET_LABELS`; in a change, it removes any label.
pub type OwnLabels = BTreeMap<String, Option<String>>;

#[derive(Debug, PartialEq, Eq)]
pub enum LabelChange {
    Same,
    /// The node would have more than [`MAX_LABELS`].
    Full,
    To {
        own: OwnLabels,
        message: String,
    },
}

pub fn effective(mut labels: Labels, own: &OwnLabels) -> Labels {
    for (key, value) in own {
        match value {
            Some(value) => drop(labels.insert(key.clone(), value.clone())),
            None => drop(labels.remove(key)),
        }
    }
    labels
}

/// `labels` are those of `KUBELEET_LABELS`.
pub fn change(labels: &Labels, own: &OwnLabels, changes: &OwnLabels) -> LabelChange {
    let mut after = own.clone();
    for (key, value) in changes {
        match value {
            None if !labels.contains_key(key) => drop(after.remove(key)),
            _ => drop(after.insert(key.clone(), value.clone())),
        }
    }
    if after == *own {
        return LabelChange::Same;
    }
    // A label that the worker no longer registers needs no hiding: its labels bound these entries.
    after.retain(|key, value| value.is_some() || labels.contains_key(key));
    let count = |own: &OwnLabels| effective(labels.clone(), own).len();
    if count(&after) > MAX_LABELS.max(count(own)) {
        return LabelChange::Full;
    }
    let is_change = |(key, _): &(&String, &Option<String>)| own.get(*key) != after.get(*key);
    let message = describe(changes.iter().filter(is_change));
    LabelChange::To { own: after, message }
}

/// `zone=b, disk removed`.
pub fn describe<'a>(changes: impl IntoIterator<Item = (&'a String, &'a Option<String>)>) -> String {
    let one = |(key, value): (&String, &Option<String>)| match value {
        Some(value) => format!("{key}={value}"),
        None => format!("{key} removed"),
    };
    changes.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

pub fn violations(changes: &OwnLabels) -> Vec<Violation> {
    let check = |(key, value): (&String, &Option<String>)| {
        let pointer = format!("/{}", json_pointer::escape(key));
        if key.is_empty() || !is_plain(key) {
            Some(Violation::new(
                pointer,
                "a key has 1 to 63 characters of A-Z, a-z, 0-9, `.`, `_`, `/` and `-`",
            ))
        } else if key.starts_with("node.") {
            Some(Violation::new(
                pointer,
                "keys that begin with `node.` are kubeleet's own: choose another key",
            ))
        } else if !value.as_deref().is_none_or(is_plain) {
            Some(Violation::new(
                pointer,
                "a value has up to 63 characters of A-Z, a-z, 0-9, `.`, `_`, `/` and `-`",
            ))
        } else {
            None
        }
    };
    changes.iter().filter_map(check).collect()
}

fn is_plain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    text.len() <= MAX_LENGTH && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, from_value, json};

    use super::*;

    fn change_of(labels: Value, own: Value, changes: Value) -> LabelChange {
        change(&from_value(labels).unwrap(), &from_value(own).unwrap(), &from_value(changes).unwrap())
    }

    #[test]
    fn a_removed_label_is_hidden_only_if_the_worker_has_it() {
        for (labels, own, changes, after, message) in [
            (json!({}), json!({}), json!({"a": "1"}), json!({"a": "1"}), "a=1"),
            (json!({}), json!({"a": "1"}), json!({"a": null}), json!({}), "a removed"),
            (json!({"a": "1"}), json!({}), json!({"a": null}), json!({"a": null}), "a removed"),
            (json!({"a": "1"}), json!({"a": null}), json!({"a": "2"}), json!({"a": "2"}), "a=2"),
            (json!({"a": "1"}), json!({}), json!({"a": "1"}), json!({"a": "1"}), "a=1"),
            (json!({}), json!({"a": null}), json!({"b": "", "c": null}), json!({"b": ""}), "b="),
        ] {
            let case = format!("{labels} {own} {changes}");
            let expected = LabelChange::To { own: from_value(after).unwrap(), message: message.to_owned() };
            assert_eq!(change_of(labels, own, changes), expected, "{case}");
        }
    }

    #[test]
    fn a_change_that_changes_nothing_is_the_same() {
        for (labels, own, changes) in [
            (json!({}), json!({}), json!({})),
            (json!({}), json!({}), json!({"a": null})),
            (json!({}), json!({"a": "1"}), json!({"a": "1"})),
            (json!({"a": "1"}), json!({"a": null}), json!({"a": null})),
        ] {
            let case = format!("{labels} {own} {changes}");
            assert_eq!(change_of(labels, own, changes), LabelChange::Same, "{case}");
        }
    }

    #[test]
    fn a_node_has_at_most_64_labels_and_one_with_more_can_lose_some() {
        let many =
            |count: usize| -> Labels { (0..count).map(|i| (format!("k{i}"), String::new())).collect() };
        let add: OwnLabels = [("more".to_owned(), Some(String::new()))].into();
        let remove: OwnLabels = [("k1".to_owned(), None)].into();
        let is_full = |count: usize, changes: &OwnLabels| {
            change(&many(count), &OwnLabels::new(), changes) == LabelChange::Full
        };
        assert!(!is_full(MAX_LABELS - 1, &add) && is_full(MAX_LABELS, &add));
        assert!(!is_full(MAX_LABELS + 9, &remove));
        let both = add.into_iter().chain(remove).collect();
        assert!(!is_full(MAX_LABELS, &both));
    }

    #[test]
    fn keys_and_values_are_short_and_plain() {
        let long = "x".repeat(64);
        for (key, value, is_valid) in [
            ("zone", Some("b"), true),
            ("a.b_c/d-E9", Some(""), true),
            ("nodes", None, true),
            (&long[..63], Some(&long[..63]), true),
            (&long, Some(""), false),
            ("a", Some(&long), false),
            ("", None, false),
            ("a b", Some(""), false),
            ("é", Some(""), false),
            ("a", Some("b,c"), false),
            ("node.hostname", None, false),
        ] {
            let changes: OwnLabels = [(key.to_owned(), value.map(str::to_owned))].into();
            assert_eq!(violations(&changes).is_empty(), is_valid, "{key}={value:?}");
        }
    }
}
