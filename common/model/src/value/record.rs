//! Secrets and configs: named values that containers get as files.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::RedisMillis;
use crate::ids::{AppName, ValueName};
use crate::value::secret_key::{DecryptError, SecretKey};

/// As for a payload: a value delays no heartbeat on shared connections.
pub const MAX_VALUE_BYTES: usize = 256 * 1024;

pub const KEPT_VERSIONS: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// No process shows it.
    Secret,
    Config,
}

impl ValueKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Config => "config",
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `Debug` shows their number only.
#[derive(Clone, PartialEq, Eq)]
pub struct ValueBytes(Vec<u8>);

impl ValueBytes {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

impl Serialize for ValueBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Errors do not quote the input.
impl<'de> Deserialize<'de> for ValueBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Reader {
            fn refuse<E: de::Error>() -> Result<ValueBytes, E> {
                Err(E::custom("must be a text: write it between quotation marks"))
            }
        }
        impl Visitor<'_> for Reader {
            type Value = ValueBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ValueBytes, E> {
                Ok(ValueBytes(text.as_bytes().to_vec()))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<ValueBytes, E> {
                Self::refuse()
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<ValueBytes, E> {
                Self::refuse()
            }
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<ValueBytes, E> {
                Self::refuse()
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<ValueBytes, E> {
                Self::refuse()
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueInfo {
    pub name: ValueName,
    /// 1, plus one for each rotation.
    pub version: u64,
    pub created_at: RedisMillis,
    pub updated_at: RedisMillis,
    pub app: Option<AppName>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct StoredValue {
    kind: ValueKind,
    name: ValueName,
    version: u64,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error(
        "this process has no key for secrets: set KUBELEET_SECRET_KEY_FILE to a file with the cluster's key"
    )]
    NoKey,
    /// Another key was used, or something else was stored.
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
}

impl StoredValue {
    pub fn new(kind: ValueKind, name: ValueName, version: u64, bytes: Vec<u8>) -> Self {
        Self { kind, name, version, bytes }
    }

    pub fn seal(
        kind: ValueKind,
        name: ValueName,
        version: u64,
        content: &ValueBytes,
        key: Option<&SecretKey>,
    ) -> Result<Self, String> {
        let bytes = match kind {
            ValueKind::Config => content.expose().to_vec(),
            ValueKind::Secret => {
                let key = key.ok_or_else(|| ReadError::NoKey.to_string())?;
                key.encrypt(&context(kind, &name, version), content.expose())?.into_bytes()
            }
        };
        Ok(Self { kind, name, version, bytes })
    }

    pub fn open(&self, key: Option<&SecretKey>) -> Result<ValueBytes, ReadError> {
        match self.kind {
            ValueKind::Config => Ok(ValueBytes::new(self.bytes.clone())),
            ValueKind::Secret => {
                let context = context(self.kind, &self.name, self.version);
                let text = String::from_utf8_lossy(&self.bytes);
                Ok(ValueBytes::new(key.ok_or(ReadError::NoKey)?.decrypt(&context, &text)?))
            }
        }
    }

    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    pub fn name(&self) -> &ValueName {
        &self.name
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} v{} ({} bytes)", self.kind, self.name, self.version, self.bytes.len())
    }
}

/// Stored under another name or version, a secret cannot be decrypted.
fn context(kind: ValueKind, name: &ValueName, version: u64) -> String {
    format!("kubeleet {kind} {name} v{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ValueName {
        ValueName::new(text).unwrap()
    }

    #[test]
    fn a_secret_is_bound_to_its_name_and_version() {
        let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        let content = ValueBytes::new(b"hunter2".to_vec());
        let sealed = StoredValue::seal(ValueKind::Secret, name("db"), 1, &content, Some(&key)).unwrap();
        assert_eq!(sealed.open(Some(&key)).unwrap(), content);
        assert_eq!(sealed.open(None), Err(ReadError::NoKey));
        for (other, version) in [("web", 1), ("db", 2)] {
            let moved = StoredValue { name: name(other), version, ..sealed.clone() };
            assert_eq!(moved.open(Some(&key)), Err(ReadError::Decrypt(DecryptError::Changed)));
        }
        let refused = StoredValue::seal(ValueKind::Secret, name("db"), 1, &content, None).unwrap_err();
        assert!(refused.contains("KUBELEET_SECRET_KEY_FILE"), "{refused}");
    }

    #[test]
    fn a_config_needs_no_key() {
        let content = ValueBytes::new(b"listen 80".to_vec());
        let stored = StoredValue::seal(ValueKind::Config, name("nginx"), 1, &content, None).unwrap();
        assert_eq!((stored.bytes(), stored.open(None).unwrap()), (&b"listen 80"[..], content));
    }

    #[test]
    fn content_is_never_shown() {
        let content: ValueBytes = serde_json::from_str(r#""hunter2""#).unwrap();
        let stored = StoredValue::seal(ValueKind::Config, name("a"), 1, &content, None).unwrap();
        assert_eq!(format!("{content:?} {stored:?}"), "(7 bytes) config a v1 (7 bytes)");
        for bad in ["123456", "-123456", "12.3456", "[123456]"] {
            let error = serde_json::from_str::<ValueBytes>(bad).unwrap_err().to_string();
            assert!(!error.contains("3456"), "{error}");
        }
    }
}
