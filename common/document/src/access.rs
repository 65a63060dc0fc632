//! Access to the parts of a document.

use std::borrow::Cow;

use super::node::{DocumentEntry, DocumentNode, TextPosition, Value, plain};

#[derive(Clone, Copy)]
pub struct Field<'a> {
    pub name: &'a str,
    pub place: Option<TextPosition>,
    pub value: &'a DocumentNode,
}

impl DocumentNode {
    pub fn empty_map(place: Option<TextPosition>) -> Self {
        Self::new(Value::Map(Vec::new()), place)
    }

    pub fn null(place: Option<TextPosition>) -> Self {
        Self::new(Value::Null, place)
    }

    pub fn list(items: Vec<DocumentNode>, place: Option<TextPosition>) -> Self {
        Self::new(Value::List(items), place)
    }

    pub fn with_text(&self, text: impl Into<String>) -> Self {
        Self::new(Value::Text(text.into()), self.place)
    }

    pub fn place(&self) -> Option<TextPosition> {
        self.place
    }

    /// Such as `!reset`; `None` for tags of YAML itself.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    #[must_use]
    pub fn untagged(&self) -> Self {
        Self { tag: None, ..self.clone() }
    }

    /// Without quotation marks in YAML.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null | Value::Removed)
    }

    pub fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// `null`, `false` and empty nodes.
    pub fn is_blank(&self) -> bool {
        match &self.value {
            Value::Null | Value::Removed => true,
            Value::Map(entries) => entries.is_empty(),
            Value::List(items) => items.is_empty(),
            _ => self.scalar().is_some_and(|text| text.is_empty() || text == "false"),
        }
    }

    /// In words: `a list`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null | Value::Removed => "null",
            Value::Map(_) => "a map",
            Value::List(_) => "a list",
            Value::Bool(_) => "a boolean",
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::Plain(value, _) => match **value {
                Value::Bool(_) => "a boolean",
                _ => "a number",
            },
        }
    }

    pub fn scalar(&self) -> Option<Cow<'_, str>> {
        match &self.value {
            Value::Text(text) | Value::Plain(_, text) => Some(Cow::Borrowed(text)),
            Value::Bool(flag) => Some(Cow::Owned(flag.to_string())),
            Value::Unsigned(number) => Some(Cow::Owned(number.to_string())),
            Value::Signed(number) => Some(Cow::Owned(number.to_string())),
            Value::Float(number) => Some(Cow::Owned(number.to_string())),
            Value::Null | Value::List(_) | Value::Map(_) | Value::Removed => None,
        }
    }

    pub fn items(&self) -> Option<&[DocumentNode]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn items_mut(&mut self) -> Option<&mut Vec<DocumentNode>> {
        match &mut self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// None for other nodes than maps.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let entries = match &self.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|entry| Field { name: &entry.key, place: entry.key_place, value: &entry.node })
    }

    pub fn get(&self, name: &str) -> Option<&DocumentNode> {
        self.field(name).map(|field| field.value)
    }

    pub fn field(&self, name: &str) -> Option<Field<'_>> {
        self.fields().find(|field| field.name == name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut DocumentNode> {
        let Value::Map(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|entry| entry.key == name).map(|entry| &mut entry.node)
    }

    /// Does nothing for other nodes than maps.
    pub fn set(&mut self, name: &str, key_place: Option<TextPosition>, node: DocumentNode) {
        let Value::Map(entries) = &mut self.value else { return };
        match entries.iter_mut().find(|entry| entry.key == name) {
            Some(entry) => (entry.key_place, entry.node) = (key_place, node),
            None => entries.push(DocumentEntry { key: name.to_owned(), key_place, node }),
        }
    }

    /// `"3"` becomes a number.
    pub fn unquoted(&self) -> Self {
        match &self.value {
            Value::Text(text) => Self { value: plain(text.clone()), ..self.clone() },
            _ => self.clone(),
        }
    }

    pub fn set_file(&mut self, file: usize) {
        let set = |place: &mut Option<TextPosition>| {
            if let Some(place) = place {
                place.file = file;
            }
        };
        set(&mut self.place);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.set_file(file)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| {
                set(&mut entry.key_place);
                entry.node.set_file(file);
            }),
            _ => {}
        }
    }

    /// Keys of maps stay.
    pub fn replace_scalars(&mut self, replace: &mut dyn FnMut(&str, Option<TextPosition>) -> Option<String>) {
        match &mut self.value {
            Value::Text(text) | Value::Plain(_, text) => {
                if let Some(new) = replace(text, self.place) {
                    self.value = Value::Text(new);
                    self.is_plain = false;
                }
            }
            Value::List(items) => items.iter_mut().for_each(|item| item.replace_scalars(replace)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| entry.node.replace_scalars(replace)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use crate::yaml;

    #[test]
    fn parts_know_their_places_and_tags() {
        let (documents, mistakes) = yaml("a: !reset null\nb: !override [x, 2]\nc: {d: '3'}\n");
        assert_eq!((documents.len(), mistakes), (1, vec![]));
        let node = &documents[0];
        let tags: Vec<_> = node.fields().map(|field| field.value.tag().map(str::to_owned)).collect();
        assert_eq!(tags, [Some("!reset".to_owned()), Some("!override".to_owned()), None]);
        assert!(node.get("a").unwrap().is_null());
        let items = node.get("b").unwrap().items().unwrap();
        assert_eq!((items[1].scalar().unwrap().as_ref(), items[1].kind()), ("2", "a number"));
        let place = node.get("c").unwrap().field("d").unwrap().place.unwrap();
        assert_eq!((place.line, place.column), (3, 5));
        assert_eq!(node.get("c").unwrap().get("d").unwrap().unquoted().kind(), "a number");
    }

    #[test]
    fn plain_scalars_are_told_from_those_in_quotation_marks() {
        let text =
            "a: TRUE\nb: 'TRUE'\nc: \"TRUE\"\nd: 0644\ne: |\n  TRUE\nf: &x yes\ng: *x\nh: &y 'no'\ni: *y\n";
        let (documents, mistakes) = yaml(text);
        assert_eq!(mistakes, []);
        let plain = documents[0].fields().filter(|field| field.value.is_plain()).map(|field| field.name);
        assert_eq!(plain.collect::<Vec<_>>(), ["a", "d", "f", "g"]);
    }

    #[test]
    fn many_aliases_of_one_anchor_are_read() {
        let services: String = (0..500).map(|number| format!("  s{number}: {{restart: *r}}\n")).collect();
        let (documents, mistakes) = yaml(&format!("x-r: &r always\nservices:\n{services}"));
        assert_eq!(mistakes, []);
        assert_eq!(documents[0].get("services").unwrap().fields().count(), 500);
    }

    #[test]
    fn merge_keys_are_expanded_and_may_be_overridden() {
        let text = "x: &x {a: 1, b: 2}\ny: &y {c: 3}\nz:\n  <<: [*x, *y]\n  b: 4\n";
        let (documents, mistakes) = yaml(text);
        assert_eq!(mistakes, []);
        let z = documents[0].get("z").unwrap();
        let mut fields: Vec<_> =
            z.fields().map(|field| format!("{}={}", field.name, field.value.scalar().unwrap())).collect();
        fields.sort();
        assert_eq!(fields, ["a=1", "b=4", "c=3"]);
    }
}
