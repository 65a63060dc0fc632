//! Rewrites the short forms of Compose to the long ones, so that a map in one file and a list in another can
//! be merged.

use document::DocumentNode;

use crate::translate::ports;

/// A map or a list of `KEY=value`.
const MAPS_OR_LISTS: [&str; 6] = [
    "services.*.environment",
    "services.*.labels",
    "services.*.annotations",
    "services.*.sysctls",
    "services.*.deploy.labels",
    "services.*.build.args",
];

/// A map or a list of its keys.
const NETWORKS: &str = "services.*.networks";
/// A map or a list of names.
const DEPENDS_ON: &str = "services.*.depends_on";
/// One item may stand for several ports.
pub(crate) const PORTS: &str = "services.*.ports";

const LISTS_OR_TEXTS: [&str; 5] = [
    "services.*.env_file",
    "services.*.tmpfs",
    "services.*.dns",
    "services.*.dns_search",
    "services.*.label_file",
];

pub(crate) fn long_form(path: &str, node: DocumentNode) -> DocumentNode {
    let is_list = node.items().is_some();
    let node = if node.tag().is_some() { node.untagged() } else { node };
    if is_list && path == PORTS {
        let items = node.items().unwrap_or_default().iter().flat_map(ports::one_by_one);
        DocumentNode::list(items.collect(), node.place())
    } else if is_list && path == DEPENDS_ON {
        started(&map_of(&node, |item| (item, None)))
    } else if is_list && MAPS_OR_LISTS.contains(&path) {
        map_of(&node, |item| match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        })
    } else if is_list && path == NETWORKS {
        map_of(&node, |item| (item, None))
    } else if !is_list && node.scalar().is_some() && LISTS_OR_TEXTS.contains(&path) {
        let place = node.place();
        DocumentNode::list(vec![node], place)
    } else {
        node
    }
}

/// List items imply this condition, even if another file set a different one.
fn started(services: &DocumentNode) -> DocumentNode {
    if !services.is_map() {
        return services.clone();
    }
    let mut map = DocumentNode::empty_map(services.place());
    for service in services.fields() {
        let mut needed = DocumentNode::empty_map(service.place);
        let text = |text: &str| DocumentNode::null(service.place).with_text(text);
        needed.set("condition", service.place, text("service_started"));
        needed.set("required", service.place, text("true").unquoted());
        map.set(service.name, service.place, needed);
    }
    map
}

/// Unchanged if an item is not text.
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
    use crate::testing::shown;

    fn long(path: &str, yaml: &str) -> DocumentNode {
        long_form(path, document::yaml(yaml).0.remove(0))
    }

    #[test]
    fn lists_become_maps_and_keep_their_places() {
        let map = long("services.*.environment", "- A=b=c\n- B\n");
        assert_eq!(map.get("A").unwrap().scalar().unwrap(), "b=c");
        assert!(map.get("B").unwrap().is_null());
        assert_eq!(map.field("B").unwrap().place.unwrap().line, 2);
        let needed = long("services.*.depends_on", "[db]");
        assert_eq!(shown(&needed), "{db: {condition: service_started, required: true}}");
        assert_eq!(shown(&long(PORTS, "['1-2:3-4', 80]")), "[1:3/tcp, 2:4/tcp, 80]");
        assert_eq!(long("services.*.tmpfs", "/run").items().unwrap().len(), 1);
    }

    #[test]
    fn what_is_something_else_stays() {
        assert!(long("services.*.ports", "[a=b]").items().is_some());
        assert!(long("services.*.environment", "[{a: b}]").items().is_some());
        assert!(long("services.*.environment", "{A: b}").is_map());
    }
}
