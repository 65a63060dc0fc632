//! Documents as trees with positions.

use std::fmt;

use crate::json_pointer;

/// Counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    /// Index of the source text.
    pub file: usize,
    pub line: u64,
    /// Characters.
    pub column: u64,
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// No `Debug`: values can be secrets.
#[derive(Clone)]
pub struct DocumentNode {
    pub(super) value: Value,
    /// `None` in a query or a body on one line.
    pub(super) place: Option<TextPosition>,
    pub(super) tag: Option<String>,
    pub(super) is_plain: bool,
}

#[derive(Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    /// With its spelling, for readers of text.
    Plain(Box<Value>, String),
    List(Vec<DocumentNode>),
    Map(Vec<DocumentEntry>),
    /// Keeps the indexes of other items.
    Removed,
}

#[derive(Clone)]
pub(super) struct DocumentEntry {
    pub(super) key: String,
    pub(super) key_place: Option<TextPosition>,
    pub(super) node: DocumentNode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    Index(usize),
}

impl DocumentNode {
    pub(super) fn new(value: Value, place: Option<TextPosition>) -> Self {
        Self { value, place, tag: None, is_plain: false }
    }

    /// Such as query parameters.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let entry = |(key, text)| DocumentEntry { key, key_place: None, node: Self::new(plain(text), None) };
        Self::new(Value::Map(pairs.into_iter().map(entry).collect()), None)
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Value::Text(text.into()), None)
    }

    pub fn has_field(&self, name: &str) -> bool {
        matches!(&self.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == name))
    }

    pub fn has_value(&self, name: &str) -> bool {
        let is_set = |entry: &DocumentEntry| entry.key == name && !matches!(entry.node.value, Value::Null);
        matches!(&self.value, Value::Map(entries) if entries.iter().any(is_set))
    }

    pub(super) fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields().map(|field| field.name)
    }

    pub fn with_default(&self, name: &str, text: &str) -> std::borrow::Cow<'_, Self> {
        let mut node = std::borrow::Cow::Borrowed(self);
        if let Value::Map(_) = self.value
            && !self.has_value(name)
            && let Value::Map(entries) = &mut node.to_mut().value
        {
            entries.retain(|entry| entry.key != name);
            entries.push(DocumentEntry { key: name.to_owned(), key_place: None, node: Self::text(text) });
        }
        node
    }

    pub fn without(&self, names: &[&str]) -> Self {
        let mut node = self.clone();
        if let Value::Map(entries) = &mut node.value {
            entries.retain(|entry| !names.contains(&entry.key.as_str()));
        }
        node
    }

    pub fn remove_field(&mut self, name: &str) {
        while self.remove(&[Step::Field(name.to_owned())]) {}
    }

    /// `None` if it is no list.
    pub fn take_list(&mut self, field: &str) -> Option<Vec<DocumentNode>> {
        self.get_mut(field)?.items_mut().map(std::mem::take)
    }

    pub fn items_of(&self, field: &str) -> impl Iterator<Item = &DocumentNode> {
        let items = match &self.value {
            Value::Map(entries) => {
                entries.iter().rev().find(|entry| entry.key == field).map(|entry| &entry.node.value)
            }
            _ => None,
        };
        match items {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        }
        .iter()
    }

    /// The place of this part, or of the innermost one around it.
    pub fn place_of(&self, pointer: &str) -> Option<TextPosition> {
        let mut node = self;
        for key in pointer.split('/').skip(1).map(json_pointer::unescape) {
            let next = match &node.value {
                Value::Map(entries) => entries.iter().rev().find(|e| e.key == key).map(|e| &e.node),
                Value::List(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.place
    }

    /// Prefers the last key with this path.
    pub(super) fn place_of_key(&self, path: &[Step], pointer: &str) -> Option<TextPosition> {
        let key = match path.split_last() {
            Some((Step::Field(field), parents)) => self.at(parents).and_then(|parent| match &parent.value {
                Value::Map(entries) => entries.iter().rev().find(|e| e.key == *field)?.key_place,
                _ => None,
            }),
            _ => None,
        };
        key.or_else(|| self.place_of(pointer))
    }

    /// Indexes in the parents, up to the first missing part.
    pub(super) fn position_of(&self, path: &[Step]) -> Vec<usize> {
        let (mut node, mut position) = (self, Vec::new());
        for step in path {
            let part = match (&node.value, step) {
                (Value::Map(entries), Step::Field(field)) => {
                    entries.iter().rposition(|e| e.key == *field).map(|at| (at, &entries[at].node))
                }
                (Value::List(items), Step::Index(index)) => items.get(*index).map(|item| (*index, item)),
                _ => None,
            };
            let Some((at, part)) = part else { break };
            position.push(at);
            node = part;
        }
        position
    }

    fn at(&self, path: &[Step]) -> Option<&DocumentNode> {
        path.iter().try_fold(self, |node, step| match (&node.value, step) {
            (Value::Map(entries), Step::Field(field)) => {
                entries.iter().rev().find(|e| e.key == *field).map(|e| &e.node)
            }
            (Value::List(items), Step::Index(index)) => items.get(*index),
            _ => None,
        })
    }

    /// The last one of a repeated key.
    pub(super) fn remove(&mut self, path: &[Step]) -> bool {
        let Some((step, rest)) = path.split_first() else { return false };
        match (&mut self.value, step) {
            (Value::Map(entries), Step::Field(field)) => {
                let Some(at) = entries.iter().rposition(|entry| entry.key == *field) else { return false };
                match rest {
                    [] => {
                        entries.remove(at);
                        true
                    }
                    rest => entries[at].node.remove(rest),
                }
            }
            (Value::List(items), Step::Index(index)) if *index < items.len() => match rest {
                [] => !matches!(std::mem::replace(&mut items[*index].value, Value::Removed), Value::Removed),
                rest => items[*index].remove(rest),
            },
            _ => false,
        }
    }
}

pub(super) fn plain(text: String) -> Value {
    let number = || {
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let unsigned = text.parse().ok().map(Value::Unsigned);
        let number = unsigned.or_else(|| text.parse().ok().map(Value::Signed));
        number.or_else(|| text.parse().ok().map(Value::Float)).filter(|_| is_number)
    };
    let value = match text.as_str() {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        _ => number(),
    };
    match value {
        Some(value) => Value::Plain(Box::new(value), text),
        None => Value::Text(text),
    }
}
