//! Test helpers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use document::DocumentNode;

use crate::source::{FileSources, PathKind, SourceError};

/// A prefix of other paths is a directory.
impl FileSources for BTreeMap<String, String> {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        self.get(path).cloned().ok_or(SourceError::NotFound)
    }

    fn kind(&self, path: &str) -> PathKind {
        let inside = format!("{path}/");
        match self.contains_key(path) {
            true => PathKind::File { mode: 0o644 },
            false if self.keys().any(|known| known.starts_with(&inside)) => {
                PathKind::Directory { is_empty: false }
            }
            false => PathKind::Missing,
        }
    }
}

pub(crate) fn service_of(yaml: &str) -> DocumentNode {
    let (mut documents, mistakes) = document::yaml(yaml);
    assert_eq!(mistakes, [], "{yaml}");
    documents.remove(0)
}

pub(crate) fn shown(node: &DocumentNode) -> String {
    if let Some(items) = node.items() {
        return format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    if node.is_map() {
        let fields = node.fields().map(|field| format!("{}: {}", field.name, shown(field.value)));
        return format!("{{{}}}", fields.collect::<Vec<_>>().join(", "));
    }
    node.scalar().map_or("null".to_owned(), |text| text.into_owned())
}
