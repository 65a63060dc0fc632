//! Test helpers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use document::DocumentNode;

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
