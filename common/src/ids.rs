//! The names things go by. Each is a newtype, so a node can not be passed where a pod is meant.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is not a valid name or id. `Display` is written for the person who typed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidName {
    what: &'static str,
    text: String,
    rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the text; the error says which rule it breaks.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&text) {
                    Ok(Self(text))
                } else {
                    let text = text.chars().take(80).collect();
                    Err(InvalidName { what: $what, text, rule: $rule })
                }
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

name!(
    /// A pod's `uuid`. kubeleet makes version-4 UUIDs; a pod pushed by hand may carry any short printable text.
    PodId, "pod uuid", "1 to 128 bytes, no control characters and no white space",
    |s| !s.is_empty() && s.len() <= 128 && !s.chars().any(|c| c.is_control() || c.is_whitespace())
);

name!(
    /// A node, which is to say the worker on it; the `<worker>` in `pq:<worker>`.
    NodeName, "node name", "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    |s| is_container_name(s)
);

name!(
    /// A service. A DNS label, so that it can be a host name later.
    ServiceName, "service name",
    "1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit",
    is_dns_label
);

name!(
    /// The `name` of a pod: its service's name, or what the person who pushed it chose.
    PodName, "pod name", "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    |s| is_container_name(s)
);

name!(
    /// One giving of a pod to a node: a fresh random UUID each time, compared by equality only.
    AssignmentId, "assignment id", "1 to 64 printable ASCII characters", is_token
);

name!(
    /// One life of a worker between two registrations: a fresh random UUID each time.
    Incarnation, "incarnation", "1 to 64 printable ASCII characters", is_token
);

name!(
    /// One immutable version of a service's pod specification, stored once and named by its pods.
    SpecId, "spec id", "1 to 64 printable ASCII characters", is_token
);

name!(
    /// One write of a service: a fresh random UUID each time, so that the confirmation of one is never taken for another's.
    WriteId, "write id", "1 to 64 printable ASCII characters", is_token
);

name!(
    /// One running scheduler process; fresh each start, so that its in-flight list has one owner ever.
    SchedulerId, "scheduler id", "1 to 64 printable ASCII characters", is_token
);

fn is_container_name(s: &str) -> bool {
    (1..=63).contains(&s.len())
        && s.as_bytes()[0].is_ascii_alphanumeric()
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_dns_label(s: &str) -> bool {
    (1..=63).contains(&s.len())
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !s.starts_with('-')
        && !s.ends_with('-')
}

fn is_token(s: &str) -> bool {
    (1..=64).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_graphic())
}

macro_rules! random {
    ($($type:ident),*) => {$(
        impl $type {
            /// A fresh random version-4 UUID.
            pub fn random() -> Self {
                Self(uuid::Uuid::new_v4().to_string())
            }
        }
    )*};
}
random!(PodId, AssignmentId, Incarnation, SchedulerId, WriteId);

impl SpecId {
    /// Twelve random hexadecimal digits: short, because every payload of a service carries it.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string()[..12].to_owned())
    }
}

impl SchedulerId {
    /// A fresh one that says whose it is: as much of the node's name as fits, and a random UUID.
    pub fn random_of(node: &NodeName) -> Self {
        Self(format!("{}{}", Self::prefix(node), uuid::Uuid::new_v4()))
    }

    /// Whether [`Self::random_of`] made it for this node, or one whose name begins alike.
    pub fn is_of(&self, node: &NodeName) -> bool {
        self.0.starts_with(&Self::prefix(node)) && self.0.len() == Self::prefix(node).len() + 36
    }

    fn prefix(node: &NodeName) -> String {
        // Letters, digits, '.', '_' and '-' only: a byte each.
        format!("{}-", &node.as_str()[..node.as_str().len().min(27)])
    }
}

impl PodId {
    /// The first eight characters: enough for people to tell pods apart.
    pub fn short(&self) -> &str {
        self.0.char_indices().nth(8).map_or(&self.0, |(end, _)| &self.0[..end])
    }
}

impl From<ServiceName> for PodName {
    /// Every service name is a valid pod name.
    fn from(name: ServiceName) -> Self {
        Self(name.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rules() {
        for good in ["web", "a", "web-2", "0a"] {
            assert!(ServiceName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-web", "web-", "Web", "we_b", "w.b", "é", &"x".repeat(64)] {
            assert!(ServiceName::new(bad).is_err(), "{bad}");
        }
        for good in ["djkf…", "0b2a", &"x".repeat(128)] {
            assert!(PodId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\n", "a\u{0}", &"x".repeat(129)] {
            assert!(PodId::new(bad).is_err(), "{bad:?}");
        }
        assert!(NodeName::new("worker1.rack-2_b").is_ok());
        assert!(NodeName::new("../etc").is_err());
    }

    #[test]
    fn short_never_cuts_a_character() {
        assert_eq!(PodId::new("djkf…").unwrap().short(), "djkf…");
        assert_eq!(PodId::new("ééééééééé").unwrap().short(), "éééééééé");
    }

    #[test]
    fn a_scheduler_says_whose_it_is() {
        for name in ["n1", &"n".repeat(63)] {
            let node = NodeName::new(name).unwrap();
            let id = SchedulerId::random_of(&node);
            assert!(SchedulerId::new(id.as_str()).is_ok(), "{id}");
            assert!(id.is_of(&node) && !id.is_of(&NodeName::new("n").unwrap()), "{id}");
        }
    }

    #[test]
    fn the_error_says_what_and_why() {
        let error = ServiceName::new("Web").unwrap_err().to_string();
        assert!(error.contains("service name \"Web\"") && error.contains("lower-case"), "{error}");
    }
}
