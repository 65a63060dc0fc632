//! Parses YAML and JSON into [`DocumentNode`]s.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Spanned, Tagged};

use super::mistake::Mistake;
use super::node::{DocumentEntry, DocumentNode, Value};
use super::syntax;

/// Through aliases (`*name`) a short text can grow without bound.
const MAX_REPEATED_VALUES: usize = 20_000;
/// No document needs ten levels, and each takes 30 KiB of stack without optimization.
const MAX_DEPTH: usize = 32;

/// JSON is YAML, too. A document with a repeated key is returned, without the later value, so that other
/// mistakes can be found.
pub fn yaml(text: &str) -> (Vec<DocumentNode>, Vec<Mistake>) {
    match yaml_documents(text, DuplicateKeyPolicy::Error) {
        Ok(documents) => (documents, Vec::new()),
        Err(error) => {
            let mistake = syntax::of_yaml(&error, text);
            let rest = match syntax::is_repeated_key(&error) {
                true => yaml_documents(text, DuplicateKeyPolicy::FirstWins).unwrap_or_default(),
                false => Vec::new(),
            };
            (rest, vec![mistake])
        }
    }
}

fn yaml_documents(
    text: &str,
    duplicates: DuplicateKeyPolicy,
) -> Result<Vec<DocumentNode>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        // As in YAML 1.2: otherwise `y` in a command is rejected.
        strict_booleans: true,
        // An excerpt would repeat secrets of the environment.
        with_snippet: false,
        duplicate_keys: duplicates,
        // Many aliases of few anchors are usual.
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, enforce_alias_anchor_ratio: false },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED_VALUES },
    };
    let documents: Vec<SpannedTag> = serde_saphyr::from_multiple_with_options(text, options)?;
    Ok(documents.into_iter().map(|document| node(document, text)).collect())
}

#[derive(serde::Deserialize)]
#[serde(transparent)]
struct SpannedTag(Spanned<Tagged<Parsed<Spanned<String>, SpannedTag>>>);

fn node(SpannedTag(parsed): SpannedTag, text: &str) -> DocumentNode {
    let place = syntax::place(&parsed.referenced);
    // As written, without the type that YAML infers.
    let written = || {
        let span = parsed.defined.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
        text.get(start..end).map(|written| written.trim().to_owned())
    };
    let Tagged(value, tag) = parsed.value;
    let tag = tag.filter(|tag| tag.starts_with('!'));
    let mut is_plain = false;
    let value = match value {
        Parsed::Scalar(Value::Text(text)) => {
            is_plain = written().is_some_and(|written| written == text);
            Value::Text(text)
        }
        Parsed::Scalar(Value::Null) => Value::Null,
        Parsed::Scalar(value) => match written() {
            Some(written) => {
                is_plain = true;
                Value::Plain(Box::new(value), written)
            }
            None => value,
        },
        Parsed::List(items) => Value::List(items.into_iter().map(|item| node(item, text)).collect()),
        Parsed::Map(entries) => {
            let entry = |(key, value): (Spanned<String>, _)| DocumentEntry {
                key_place: syntax::place(&key.referenced),
                key: key.value,
                node: node(value, text),
            };
            Value::Map(entries.into_iter().map(entry).collect())
        }
    };
    DocumentNode { tag, is_plain, ..DocumentNode::new(value, place) }
}

enum Parsed<K, T> {
    Scalar(Value),
    List(Vec<T>),
    Map(Vec<(K, T)>),
}

impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Parsed<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<K, T>(PhantomData<(K, T)>);
        impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Reader<K, T> {
            type Value = Parsed<K, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Null))
            }
            fn visit_none<E: de::Error>(self) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Null))
            }
            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Bool(flag)))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Unsigned(n)))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(u64::try_from(n).map_or(Value::Signed(n), Value::Unsigned)))
            }
            fn visit_u128<E: de::Error>(self, n: u128) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Float(n as f64)))
            }
            fn visit_i128<E: de::Error>(self, n: i128) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Float(n as f64)))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Float(n)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Parsed<K, T>, E> {
                Ok(Parsed::Scalar(Value::Text(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Parsed<K, T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Parsed::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed<K, T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Parsed::Map(entries))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

pub fn json(text: &[u8]) -> Result<DocumentNode, Mistake> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = WithoutPlaces::deserialize(&mut reader).map_err(|error| syntax::of_json(&error))?;
    reader.end().map_err(|error| syntax::of_json(&error))?;
    Ok(value.0)
}

/// The JSON parser reports no positions, and most JSON has one line.
struct WithoutPlaces(DocumentNode);

impl<'de> Deserialize<'de> for WithoutPlaces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry = |(key, Self(node))| DocumentEntry { key, key_place: None, node };
        let value = match Parsed::<String, Self>::deserialize(deserializer)? {
            Parsed::Scalar(value) => value,
            Parsed::List(items) => Value::List(items.into_iter().map(|Self(item)| item).collect()),
            Parsed::Map(entries) => Value::Map(entries.into_iter().map(entry).collect()),
        };
        Ok(Self(DocumentNode::new(value, None)))
    }
}

impl From<&serde_json::Value> for DocumentNode {
    fn from(json: &serde_json::Value) -> Self {
        WithoutPlaces::deserialize(json).expect("any value is a document").0
    }
}
