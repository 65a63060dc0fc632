//! Reads a [`DocumentNode`] as any type that implements `Deserialize`.

use std::collections::HashSet;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::mistake::{DocumentReadError, one_of};
use super::node::{DocumentEntry, DocumentNode, Step, Value};
use crate::number::whole;

/// Errors have the path from this part on.
pub(super) struct DocumentPart<'de>(pub(super) &'de DocumentNode);

impl<'de> DocumentPart<'de> {
    fn as_text(&self) -> Option<&'de str> {
        match &self.0.value {
            Value::Text(text) | Value::Plain(_, text) => Some(text),
            _ => None,
        }
    }

    /// Accepts `3.0`.
    fn visit_whole<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        let value = match &self.0.value {
            Value::Plain(value, _) => value,
            value => value,
        };
        let number = if let Value::Float(n) = value { whole(*n) } else { None };
        match number {
            Some(n) => visitor.visit_u64(n),
            None => Self::visit(value, visitor),
        }
    }

    fn visit<V: Visitor<'de>>(value: &'de Value, visitor: V) -> Result<V::Value, DocumentReadError> {
        match value {
            Value::Null | Value::Removed => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Unsigned(n) => visitor.visit_u64(*n),
            Value::Signed(n) => visitor.visit_i64(*n),
            Value::Float(n) => visitor.visit_f64(*n),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Plain(value, _) => Self::visit(value, visitor),
            Value::List(items) => visitor.visit_seq(ListItems { items: items.iter().enumerate() }),
            Value::Map(entries) => visit_map(entries, None, visitor),
        }
    }
}

fn visit_map<'de, V: Visitor<'de>>(
    entries: &'de [DocumentEntry],
    fields: Option<StructFields>,
    visitor: V,
) -> Result<V::Value, DocumentReadError> {
    let mut access = MapEntries { entries, fields, at: 0, seen: HashSet::new() };
    visitor.visit_map(&mut access).map_err(|error| access.complete(error))
}

impl<'de> de::Deserializer<'de> for DocumentPart<'de> {
    type Error = DocumentReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        Self::visit(&self.0.value, visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        match self.as_text() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        self.visit_whole(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        self.visit_whole(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        self.visit_whole(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        match self.0.value {
            Value::Null | Value::Removed => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DocumentReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DocumentReadError> {
        visit_struct(self.0, StructFields { known, others: Others::Refused }, visitor)
    }

    /// Only variants without data occur in documents.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DocumentReadError> {
        match self.as_text() {
            Some(text) => {
                let variant: StrDeserializer<'_, DocumentReadError> = text.into_deserializer();
                visitor.visit_enum(variant)
            }
            None => self.deserialize_any(WantsName(variants)).map(|never| match never {}),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[derive(Clone, Copy)]
struct StructFields {
    known: &'static [&'static str],
    others: Others,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Refused,
    /// Fields of another struct.
    Skipped,
}

fn visit_struct<'de, V: Visitor<'de>>(
    node: &'de DocumentNode,
    fields: StructFields,
    visitor: V,
) -> Result<V::Value, DocumentReadError> {
    match &node.value {
        Value::Map(entries) => visit_map(entries, Some(fields), visitor),
        Value::List(_) => Err(de::Error::invalid_type(de::Unexpected::Seq, &"a map of fields")),
        other => DocumentPart::visit(other, visitor),
    }
}

/// Deserializes one of several structs that share a map.
pub(super) struct FieldsDeserializer<'de>(pub(super) &'de DocumentNode);

impl<'de> de::Deserializer<'de> for FieldsDeserializer<'de> {
    type Error = DocumentReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DocumentReadError> {
        DocumentPart(self.0).deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DocumentReadError> {
        visit_struct(self.0, StructFields { known, others: Others::Skipped }, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

pub fn field_names<T: de::DeserializeOwned>() -> Vec<&'static str> {
    T::deserialize(TellsFields).err().map(DocumentReadError::into_known_fields).unwrap_or_default()
}

struct TellsFields;

impl<'de> de::Deserializer<'de> for TellsFields {
    type Error = DocumentReadError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DocumentReadError> {
        Err(de::Error::unknown_field("", &[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DocumentReadError> {
        Err(de::Error::unknown_field("", known))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Nothing else is the name of a variant.
struct WantsName(&'static [&'static str]);

impl Visitor<'_> for WantsName {
    type Value = std::convert::Infallible;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&one_of(self.0))
    }
}

struct ListItems<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, DocumentNode>>,
}

impl<'de> de::SeqAccess<'de> for ListItems<'de> {
    type Error = DocumentReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DocumentReadError> {
        let next = self.items.find(|(_, item)| !matches!(item.value, Value::Removed));
        let Some((index, item)) = next else { return Ok(None) };
        seed.deserialize(DocumentPart(item)).map(Some).map_err(|error| error.inside(Step::Index(index)))
    }
}

struct MapEntries<'de> {
    entries: &'de [DocumentEntry],
    /// `None` if the map may have any keys.
    fields: Option<StructFields>,
    at: usize,
    seen: HashSet<&'de str>,
}

impl MapEntries<'_> {
    fn step(&self) -> Option<Step> {
        let entry = self.at.checked_sub(1).and_then(|at| self.entries.get(at));
        entry.map(|entry| Step::Field(entry.key.clone()))
    }

    fn complete(&self, error: DocumentReadError) -> DocumentReadError {
        match self.step() {
            Some(step) if error.lacks_its_key() => error.inside(step),
            _ => error,
        }
    }

    fn is_wanted(&self, entry: &DocumentEntry) -> Result<bool, DocumentReadError> {
        let Some(StructFields { known, others }) = self.fields else { return Ok(true) };
        match (known.contains(&entry.key.as_str()), others) {
            (false, Others::Refused) => Err(DocumentReadError::unknown(&entry.key, known.to_vec())),
            (is_known, Others::Skipped) => Ok(is_known && !matches!(entry.node.value, Value::Null)),
            (true, Others::Refused) => Ok(true),
        }
    }

    fn inside(&self, error: DocumentReadError) -> DocumentReadError {
        match self.step() {
            Some(step) => error.inside(step),
            None => error,
        }
    }
}

impl<'de> de::MapAccess<'de> for MapEntries<'de> {
    type Error = DocumentReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DocumentReadError> {
        let entry = loop {
            let Some(entry) = self.entries.get(self.at) else { return Ok(None) };
            self.at += 1;
            if !self.seen.insert(&entry.key) {
                return Err(self.inside(DocumentReadError::set_twice()));
            }
            if self.is_wanted(entry)? {
                break entry;
            }
        };
        let key = de::value::BorrowedStrDeserializer::new(&entry.key);
        seed.deserialize(key).map(Some).map_err(|error| self.inside(error))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DocumentReadError> {
        let entry = self.at.checked_sub(1).and_then(|at| self.entries.get(at));
        let Some(entry) = entry else { return Err(de::Error::custom("a value without a key")) };
        seed.deserialize(DocumentPart(&entry.node)).map_err(|error| self.inside(error))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len() - self.at)
    }
}
