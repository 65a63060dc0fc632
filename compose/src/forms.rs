//! The short forms of Compose, rewritten as the long ones: what is a map in one file and a list in another
//! can then be merged, and translated from one form.

use common::document::DocumentNode;

/// Fields that are a map, or a list of `KEY=value`. The paths are those of the table of fields.
const MAPS_OR_LISTS: [&str; 6] = [
    "services.*.environment",
    "services.*.labels",
    "services.*.annotations",
    "services.*.sysctls",
    "services.*.deploy.labels",
    "services.*.build.args",
];

/// Fields that are a map, or a list of its keys.
const MAPS_OR_NAMES: [&str; 2] = ["services.*.depends_on", "services.*.networks"];

/// Fields that are a list, or one text.
const LISTS_OR_TEXTS: [&str; 5] = [
    "services.*.env_file",
    "services.*.tmpfs",
    "services.*.dns",
    "services.*.dns_search",
    "services.*.label_file",
];

/// Rewrites the value of the field with this path.
pub(crate) fn long_form(path: &str, node: DocumentNode) -> DocumentNode {
    let is_list = node.items().is_some();
    if is_list && MAPS_OR_LISTS.contains(&path) {
        map_of(&node, |item| match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        })
    } else if is_list && MAPS_OR_NAMES.contains(&path) {
        map_of(&node, |item| (item, None))
    } else if !is_list && node.scalar().is_some() && LISTS_OR_TEXTS.contains(&path) {
        let place = node.place();
        DocumentNode::list(vec![node], place)
    } else {
        node
    }
}

/// Returns a list as a map; as it is if an item is no text.
fn map_of(list: &DocumentNode, split: impl Fn(&str) -> (&str, Option<&str>)) -> DocumentNode {
    let mut map = DocumentNode::empty_map(list.place());
    for item in list.items().unwrap_or_default() {
        let Some(text) = item.scalar() else { return list.clone() };
        let (name, value) = split(&text);
        let value = match value {
            Some(value) => item.with_text(value),
            None => DocumentNode::null(item.place()),
        };
        map.set(name, item.place(), value);
    }
    map
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn long(path: &str, yaml: &str) -> DocumentNode {
        long_form(path, common::document::yaml(yaml).0.remove(0))
    }

    #[test]
    fn lists_become_maps_and_keep_their_places() {
        let map = long("services.*.environment", "- A=b=c\n- B\n");
        assert_eq!(map.get("A").unwrap().scalar().unwrap(), "b=c");
        assert!(map.get("B").unwrap().is_null());
        assert_eq!(map.field("B").unwrap().place.unwrap().line, 2);
        assert!(long("services.*.depends_on", "[db]").get("db").unwrap().is_null());
        assert_eq!(long("services.*.tmpfs", "/run").items().unwrap().len(), 1);
    }

    #[test]
    fn what_is_something_else_stays() {
        assert!(long("services.*.ports", "[a=b]").items().is_some());
        assert!(long("services.*.environment", "[{a: b}]").items().is_some());
        assert!(long("services.*.environment", "{A: b}").is_map());
    }
}
