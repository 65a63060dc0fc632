//! Conversion of Redis replies. Unexpected replies are [`StoreError::Corrupt`], never a panic.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use redis::{FromRedisValue, Value};

use super::StoreError;

pub(crate) type RawFields = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn read<T: FromRedisValue>(what: &str, value: Value) -> Result<T, StoreError> {
    redis::from_redis_value(value).map_err(|e| corrupt(what, e))
}

pub(crate) fn corrupt(what: &str, why: impl ToString) -> StoreError {
    StoreError::Corrupt { what: what.to_owned(), why: why.to_string() }
}

pub(crate) fn list(what: &str, value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        Value::Nil => Ok(Vec::new()),
        other => Err(corrupt(what, format!("expected a list, got {other:?}"))),
    }
}

pub(crate) fn word(what: &str, value: Value) -> Result<String, StoreError> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|e| corrupt(what, e)),
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK".to_owned()),
        other => Err(corrupt(what, format!("expected a word, got {other:?}"))),
    }
}

pub(crate) fn verdict(what: &str, value: Value) -> Result<(String, Vec<Value>), StoreError> {
    let mut values = list(what, value)?.into_iter();
    let first = values.next().ok_or_else(|| corrupt(what, "empty reply"))?;
    Ok((word(what, first)?, values.collect()))
}

pub(crate) fn unexpected(what: &str, word: &str) -> StoreError {
    corrupt(what, format!("the script replied {word:?}"))
}

pub(crate) fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Skips invalid names.
pub(crate) fn names<T: FromStr>(members: Vec<Vec<u8>>) -> Vec<T> {
    members.iter().filter_map(|member| parse(member)).collect()
}

/// Skips invalid names.
pub(crate) fn sorted_names<T: FromStr + Ord>(members: Vec<Vec<u8>>) -> Vec<T> {
    let mut names = names(members);
    names.sort();
    names
}

/// Invalid UTF-8 becomes replacement characters.
pub(crate) struct HashFields<'a> {
    what: &'a str,
    map: HashMap<String, Vec<u8>>,
}

impl<'a> HashFields<'a> {
    pub(crate) fn read(what: &'a str, value: Value) -> Result<Option<Self>, StoreError> {
        // Another program may have written a field name that is not UTF-8.
        let map: HashMap<Vec<u8>, Vec<u8>> = read(what, value)?;
        let name = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let map: HashMap<String, Vec<u8>> =
            map.into_iter().map(|(field, value)| (name(field), value)).collect();
        Ok((!map.is_empty()).then_some(Self { what, map }))
    }

    pub(crate) fn texts(&self) -> BTreeMap<String, String> {
        self.map.keys().map(|field| (field.clone(), self.text(field))).collect()
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.map.get(field).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    pub(crate) fn with_prefix<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = (&'s str, String)> {
        self.map.keys().filter_map(move |field| Some((field.strip_prefix(prefix)?, self.text(field))))
    }

    /// Missing or empty is the default.
    pub(crate) fn number<T: FromStr + Default>(&self, field: &str) -> Result<T, StoreError> {
        let text = self.text(field);
        if text.is_empty() {
            return Ok(T::default());
        }
        text.parse().map_err(|_| corrupt(self.what, format!("{field} is {text:?}, not a number")))
    }

    /// Must exist.
    pub(crate) fn parse<T>(&self, field: &str) -> Result<T, StoreError>
    where
        T: FromStr,
        T::Err: ToString,
    {
        self.text(field)
            .parse()
            .map_err(|e: T::Err| corrupt(self.what, format!("{field}: {}", e.to_string())))
    }

    pub(crate) fn parse_opt<T>(&self, field: &str) -> Result<Option<T>, StoreError>
    where
        T: FromStr,
        T::Err: ToString,
    {
        if self.text(field).is_empty() { Ok(None) } else { self.parse(field).map(Some) }
    }

    /// Missing or empty is the default.
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
