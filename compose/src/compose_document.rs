//! A document of a Compose file with its context.

use std::collections::BTreeMap;

use document::DocumentNode;

pub(crate) type Variables = BTreeMap<String, String>;

pub(crate) struct ComposeDocument {
    pub(crate) file: String,
    pub(crate) root: DocumentNode,
}

#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) folder: &'a str,
    pub(crate) variables: &'a Variables,
}

pub(crate) fn text_of(node: &DocumentNode, field: &str) -> Option<String> {
    node.get(field).and_then(DocumentNode::scalar).map(|text| text.into_owned())
}

pub(crate) fn names_of(node: &DocumentNode, field: &str) -> Vec<String> {
    node.get(field).into_iter().flat_map(|inner| inner.fields().map(|field| field.name.to_owned())).collect()
}
