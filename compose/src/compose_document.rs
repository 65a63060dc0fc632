//! A document of a Compose file, and what is around it.

use std::collections::BTreeMap;

use document::DocumentNode;

/// The variables that the texts may use.
pub(crate) type Variables = BTreeMap<String, String>;

/// A document of a file, before its variables are replaced.
pub(crate) struct ComposeDocument {
    pub(crate) file: String,
    pub(crate) root: DocumentNode,
}

/// Where the paths of a document begin, and what its variables are.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) folder: &'a str,
    pub(crate) variables: &'a Variables,
}

/// Returns the names of the fields in a field.
pub(crate) fn names_of(node: &DocumentNode, field: &str) -> Vec<String> {
    node.get(field).into_iter().flat_map(|inner| inner.fields().map(|field| field.name.to_owned())).collect()
}
