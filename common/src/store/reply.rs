//! From Redis replies to our types. What does not fit is [`StoreError::Corrupt`], never a panic.

use std::collections::HashMap;
use std::str::FromStr;

use bytes::Bytes;
use redis::{FromRedisValue, Value};

use super::StoreError;

/// Reads a reply as a type of the redis crate's knowledge.
pub(crate) fn read<T: FromRedisValue>(what: &str, value: Value) -> Result<T, StoreError> {
    redis::from_redis_value(value).map_err(|e| corrupt(what, e))
}

pub(crate) fn corrupt(what: &str, why: impl ToString) -> StoreError {
    StoreError::Corrupt { what: what.to_owned(), why: why.to_string() }
}

/// A reply that is a list.
pub(crate) fn list(what: &str, value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        Value::Nil => Ok(Vec::new()),
        other => Err(corrupt(what, format!("expected a list, got {other:?}"))),
    }
}

/// A reply that is one word, as the scripts give verdicts.
pub(crate) fn word(what: &str, value: Value) -> Result<String, StoreError> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|e| corrupt(what, e)),
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK".to_owned()),
        other => Err(corrupt(what, format!("expected a word, got {other:?}"))),
    }
}

/// A list whose first element is the verdict and whose rest belongs to it.
pub(crate) fn verdict(what: &str, value: Value) -> Result<(String, Vec<Value>), StoreError> {
    let mut values = list(what, value)?.into_iter();
    let first = values.next().ok_or_else(|| corrupt(what, "empty reply"))?;
    Ok((word(what, first)?, values.collect()))
}

pub(crate) fn unexpected(what: &str, word: &str) -> StoreError {
    corrupt(what, format!("the script answered {word:?}"))
}

/// Payloads: bytes, whatever they are.
pub(crate) fn payloads(what: &str, value: Value) -> Result<Vec<Bytes>, StoreError> {
    let bytes: Vec<Vec<u8>> = read(what, value)?;
    Ok(bytes.into_iter().map(Bytes::from).collect())
}

/// A hash, with typed access to its fields. Values that are not UTF-8 are shown with replacement characters.
pub(crate) struct Fields<'a> {
    what: &'a str,
    map: HashMap<String, Vec<u8>>,
}

impl<'a> Fields<'a> {
    /// None when the hash does not exist.
    pub(crate) fn read(what: &'a str, value: Value) -> Result<Option<Self>, StoreError> {
        let map: HashMap<String, Vec<u8>> = read(what, value)?;
        Ok((!map.is_empty()).then_some(Self { what, map }))
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.map.get(field).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    /// A missing or empty number is the default; anything else that is no number is an error.
    pub(crate) fn number<T: FromStr + Default>(&self, field: &str) -> Result<T, StoreError> {
        let text = self.text(field);
        if text.is_empty() {
            return Ok(T::default());
        }
        text.parse().map_err(|_| corrupt(self.what, format!("{field} is {text:?}, not a number")))
    }

    /// A name or id that must be there.
    pub(crate) fn parse<T>(&self, field: &str) -> Result<T, StoreError>
    where
        T: FromStr,
        T::Err: ToString,
    {
        self.text(field)
            .parse()
            .map_err(|e: T::Err| corrupt(self.what, format!("{field}: {}", e.to_string())))
    }

    /// A name or id that may be missing.
    pub(crate) fn parse_opt<T>(&self, field: &str) -> Result<Option<T>, StoreError>
    where
        T: FromStr,
        T::Err: ToString,
    {
        if self.text(field).is_empty() { Ok(None) } else { self.parse(field).map(Some) }
    }

    /// A field that holds JSON; missing or empty is the default.
    pub(crate) fn json<T: serde::de::DeserializeOwned + Default>(
        &self,
        field: &str,
    ) -> Result<T, StoreError> {
        match self.map.get(field) {
            Some(bytes) if !bytes.is_empty() => {
                serde_json::from_slice(bytes).map_err(|e| corrupt(self.what, format!("{field}: {e}")))
            }
            _ => Ok(T::default()),
        }
    }
}
