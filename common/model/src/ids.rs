//! Names and ids, each a newtype.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidName {
    what: &'static str,
    text: String,
    rule: &'static str,
}

macro_rules! name {
    ($type:ident, $what:literal) => {
        name!($type, $what, "1 to 64 printable ASCII characters", is_token);
    };
    ($type:ident, $what:literal, $rule:literal, $valid:expr) => {
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $type(String);

        impl $type {
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

// A UUID, or any short printable text for a pushed pod.
name!(PodId, "pod uuid", "1 to 128 bytes, no control characters and no white space", |s| !s.is_empty()
    && s.len() <= 128
    && !s.chars().any(|c| c.is_control() || c.is_whitespace()));

// The `<worker>` in `pq:<worker>`.
name!(
    NodeName,
    "node name",
    "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    |s| is_container_name(s)
);

// A DNS label: part of host names.
name!(
    ServiceName,
    "service name",
    "1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit",
    is_dns_label
);

// A DNS label, because names of services begin with it.
name!(
    AppName,
    "app name",
    "1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit",
    is_dns_label
);

// Its service's, or any for a pushed pod.
name!(
    PodName,
    "pod name",
    "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    |s| is_container_name(s)
);

// Unique in its pod.
name!(
    ContainerName,
    "container name",
    "1 to 63 of a-z, 0-9 and '-', not beginning or ending with '-'",
    is_dns_label
);

// As in Compose and Docker.
name!(
    ValueName,
    "name of a secret or config",
    "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    |s| is_container_name(s)
);

// It is a part of the name of a variable, KUBELEET_RESOURCE_GPU: no two names give the same.
name!(
    ResourceName,
    "name of a resource",
    "1 to 32 of a-z, 0-9 and '-', beginning with one of a-z, not ending with '-'",
    |s| s.len() <= 32 && s.starts_with(|c: char| c.is_ascii_lowercase()) && is_dns_label(s)
);

// A number, or a UUID or address of a device.
name!(ResourceId, "id of a resource", "1 to 64 letters, digits, '.', '_', ':' or '-'", |s| {
    (1..=64).contains(&s.len())
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
});

// With its port if any. A name without dot and port is invalid: engines would use Docker Hub.
name!(
    RegistryHost,
    "registry",
    "a host name with a dot, an address or `localhost`, in lower case, with a port if it has one: `registry.example:5000`",
    |s| is_registry_host(s)
);

// `web_data_0`, or a shared volume such as `web_data_shared` (of a service) or `shop_data_app` (of an
// app).
name!(
    VolumeName,
    "volume name",
    "1 to 140 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    |s| s.len() <= 140
        && s.starts_with(|c: char| c.is_ascii_alphanumeric())
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
);

impl VolumeName {
    /// Unique: the owner, a service or an app, contains no `_`, and the last part tells the two apart.
    pub fn of(owner: &ServiceName, source: &str, scope: impl fmt::Display) -> Result<Self, InvalidName> {
        Self::new(format!("{owner}_{source}_{scope}"))
    }

    pub fn of_replica(service: &ServiceName, source: &str, replica: u32) -> Result<Self, InvalidName> {
        Self::of(service, source, replica)
    }
}

// Compared for equality only.
name!(AssignmentId, "assignment id");

// One registration of a worker. Begins with the holder and a dot; external workers and earlier versions
// have no dot.
name!(Incarnation, "incarnation");

// All worker processes of one node during one boot of its machine.
name!(HolderId, "holder id", "1 to 27 lower-case hexadecimal digits", |s| (1..=27).contains(&s.len())
    && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));

// In Redis and on every worker.
name!(ClusterId, "cluster id");

// One immutable version of a pod specification.
name!(SpecId, "spec id");

// A random UUID, so that confirmations are unambiguous.
name!(WriteId, "write id");

// A client that changes an app.
name!(LockId, "lock id");

// One recovery request to the workers.
name!(RecoveryId, "recovery id");

// One request to a worker.
name!(RequestId, "request id");

// New at every start of a scheduler, so that an in-flight list has exactly one owner.
name!(SchedulerId, "scheduler id");

fn is_container_name(s: &str) -> bool {
    (1..=63).contains(&s.len())
        && s.as_bytes()[0].is_ascii_alphanumeric()
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_registry_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (text, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let is_named =
        host.split('.').all(is_dns_label) && (host.contains('.') || port.is_some() || host == "localhost");
    text.len() <= 255 && port.is_none_or(is_port) && (is_address || is_named)
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
            pub fn random() -> Self {
                Self(uuid::Uuid::new_v4().to_string())
            }
        }
    )*};
}
random!(ClusterId, PodId, AssignmentId, Incarnation, LockId, RecoveryId, RequestId, SchedulerId, WriteId);

impl HolderId {
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string()[..16].to_owned())
    }
}

impl Incarnation {
    pub fn random_of(holder: &HolderId) -> Self {
        Self(format!("{holder}.{}", uuid::Uuid::new_v4()))
    }
}

impl SpecId {
    /// Twelve hexadecimal digits: few, because every payload contains them.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string()[..12].to_owned())
    }
}

impl SchedulerId {
    pub fn random_for(node: &NodeName) -> Self {
        Self(format!("{}{}", Self::prefix(node), uuid::Uuid::new_v4()))
    }

    /// Also true of a name with the same first 27 bytes.
    pub fn belongs_to(&self, node: &NodeName) -> bool {
        self.0.starts_with(&Self::prefix(node)) && self.0.len() == Self::prefix(node).len() + 36
    }

    fn prefix(node: &NodeName) -> String {
        // ASCII: any byte is a character boundary.
        format!("{}-", &node.as_str()[..node.as_str().len().min(27)])
    }
}

impl PodId {
    pub fn short(&self) -> &str {
        self.0.char_indices().nth(8).map_or(&self.0, |(end, _)| &self.0[..end])
    }
}

impl AppName {
    /// `None` for another app's service.
    pub fn short_name<'a>(&self, service: &'a ServiceName) -> Option<&'a str> {
        let short = service.as_str().strip_prefix(self.as_str())?.strip_prefix('-')?;
        (!short.is_empty()).then_some(short)
    }

    pub fn service(&self, short: &str) -> Result<ServiceName, InvalidName> {
        ServiceName::new(format!("{self}-{short}"))
    }
}

impl From<ServiceName> for PodName {
    fn from(name: ServiceName) -> Self {
        Self(name.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_follow_their_rules() {
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
    fn short_does_not_split_a_character() {
        assert_eq!(PodId::new("djkf…").unwrap().short(), "djkf…");
        assert_eq!(PodId::new("ééééééééé").unwrap().short(), "éééééééé");
    }

    #[test]
    fn a_scheduler_id_names_its_node() {
        for name in ["n1", &"n".repeat(63)] {
            let node = NodeName::new(name).unwrap();
            let id = SchedulerId::random_for(&node);
            assert!(SchedulerId::new(id.as_str()).is_ok(), "{id}");
            assert!(id.belongs_to(&node) && !id.belongs_to(&NodeName::new("n").unwrap()), "{id}");
        }
    }

    #[test]
    fn the_error_names_the_text_and_the_rule() {
        let error = ServiceName::new("Web").unwrap_err().to_string();
        assert!(error.contains("service name \"Web\"") && error.contains("lower-case"), "{error}");
    }
}
