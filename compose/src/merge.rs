//! How a Compose file overrides another one, and a service the one that it extends.

use std::collections::BTreeSet;

use common::document::{DocumentNode, Field};

use crate::fields;
use crate::forms::long_form;

/// Fields that are replaced as a whole.
const REPLACED: [&str; 3] = ["services.*.command", "services.*.entrypoint", "services.*.healthcheck.test"];

/// Lists in which an item replaces the earlier one with the same target.
const BY_TARGET: [&str; 3] = ["services.*.volumes", "services.*.secrets", "services.*.configs"];

/// The list in which an equal item is not repeated, whatever its form.
const PORTS: &str = "services.*.ports";

/// Takes what a map has without `!reset`, in long form: the beginning of a merge.
pub(crate) fn first(node: &DocumentNode, path: &str) -> DocumentNode {
    merge(DocumentNode::empty_map(node.place()), node, path)
}

/// Returns `base` with what `over` says. `path` is that of both in the table of fields.
pub(crate) fn merge(base: DocumentNode, over: &DocumentNode, path: &str) -> DocumentNode {
    let over = long_form(path, over.clone());
    match over.tag() {
        Some("!reset") => return DocumentNode::null(over.place()),
        Some("!override") => return if over.is_map() { first_without_tag(&over, path) } else { over },
        _ => {}
    }
    if over.is_null() && !base.is_blank() {
        return base;
    }
    if over.is_map() && (base.is_map() || base.is_null()) {
        return merge_maps(base, &over, path);
    }
    match (base.items(), over.items()) {
        (Some(before), Some(after)) if !REPLACED.contains(&path) => {
            DocumentNode::list(merge_lists(before, after, path), over.place())
        }
        _ => over,
    }
}

fn first_without_tag(node: &DocumentNode, path: &str) -> DocumentNode {
    merge_maps(DocumentNode::empty_map(node.place()), node, path)
}

fn merge_maps(mut base: DocumentNode, over: &DocumentNode, path: &str) -> DocumentNode {
    if base.is_null() {
        base = DocumentNode::empty_map(over.place());
    }
    for Field { name, place, value } in over.fields() {
        if value.tag() == Some("!reset") {
            base.remove_field(name);
            continue;
        }
        let path = fields::path_of(path, name);
        let before = base.get(name).cloned().unwrap_or_else(|| DocumentNode::null(place));
        let merged = merge(before, value, &path);
        base.set(name, place, merged);
    }
    base
}

fn merge_lists(before: &[DocumentNode], after: &[DocumentNode], path: &str) -> Vec<DocumentNode> {
    let mut items: Vec<DocumentNode> = before.to_vec();
    for item in after {
        let same = key_of(item, path).and_then(|key| {
            items.iter().position(|known| key_of(known, path).as_deref() == Some(key.as_str()))
        });
        match same {
            Some(at) => items[at] = item.clone(),
            None => items.push(item.clone()),
        }
    }
    items
}

/// Returns what identifies an item of a list; items without it are never the same.
fn key_of(item: &DocumentNode, path: &str) -> Option<String> {
    if BY_TARGET.contains(&path) {
        return target(item);
    }
    if path == PORTS && item.is_map() {
        let part =
            |name: &str| item.get(name).and_then(DocumentNode::scalar).unwrap_or_default().into_owned();
        let protocol = Some(part("protocol")).filter(|text| !text.is_empty());
        let protocol = protocol.unwrap_or_else(|| "tcp".to_owned());
        let address = [part("host_ip"), part("published"), part("target")];
        let address: Vec<_> = address.into_iter().filter(|part| !part.is_empty()).collect();
        return Some(format!("{}/{protocol}", address.join(":")));
    }
    let text = item.scalar()?.into_owned();
    Some(if path == PORTS && !text.contains('/') { format!("{text}/tcp") } else { text })
}

/// Returns where a volume, secret or config appears in the container.
fn target(item: &DocumentNode) -> Option<String> {
    let text = |name: &str| item.get(name).and_then(DocumentNode::scalar).map(|text| text.into_owned());
    if item.is_map() {
        return text("target").or_else(|| text("source"));
    }
    let short = item.scalar()?.into_owned();
    let parts: Vec<&str> = short.split(':').collect();
    Some(match parts.as_slice() {
        [_, target, ..] => (*target).to_owned(),
        _ => short,
    })
}

/// Returns the names that both maps have: what an included application must not define again.
pub(crate) fn common_names(one: &DocumentNode, other: &DocumentNode) -> BTreeSet<String> {
    let names =
        |node: &DocumentNode| node.fields().map(|field| field.name.to_owned()).collect::<BTreeSet<_>>();
    names(one).intersection(&names(other)).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::testing::{service_of, shown};

    #[test]
    fn fields_are_merged_by_their_own_rules() {
        for (base, over, merged) in [
            ("image: a", "image: b", "{image: b}"),
            ("image: a", "user: x", "{image: a, user: x}"),
            ("image: a", "image: ", "{image: a}"),
            ("command: [a, b]", "command: c", "{command: c}"),
            ("command: [a, b]", "command: [c]", "{command: [c]}"),
            ("cap_drop: [A]", "cap_drop: [B, A]", "{cap_drop: [A, B]}"),
            ("environment: {A: 1, B: 2}", "environment: [B=3, C]", "{environment: {A: 1, B: 3, C: null}}"),
            ("environment: [A=1]", "environment: {A: 2}", "{environment: {A: 2}}"),
            ("labels: [a=1]", "labels: [b=2]", "{labels: {a: 1, b: 2}}"),
            (
                "depends_on: [a]",
                "depends_on: {b: {condition: x}}",
                "{depends_on: {a: null, b: {condition: x}}}",
            ),
            ("env_file: a", "env_file: [b]", "{env_file: [a, b]}"),
            ("ports: ['80:80']", "ports: ['80:80/tcp', '81:81']", "{ports: [80:80/tcp, 81:81]}"),
            (
                "ports: ['8080:80']",
                "ports: [{target: 80, published: 8080, mode: host}]",
                "{ports: [{target: 80, published: 8080, mode: host}]}",
            ),
            ("volumes: ['a:/x', 'b:/y']", "volumes: ['c:/x:ro']", "{volumes: [c:/x:ro, b:/y]}"),
            (
                "deploy: {replicas: 1, labels: [a=1]}",
                "deploy: {replicas: 2, labels: {b: 2}}",
                "{deploy: {replicas: 2, labels: {a: 1, b: 2}}}",
            ),
            ("ports: ['80']\nuser: x", "ports: !reset []", "{user: x}"),
            ("ports: ['80']", "ports: !override ['81']", "{ports: [81]}"),
            ("environment: {A: 1, B: 2}", "environment: {A: !reset null}", "{environment: {B: 2}}"),
            ("environment: {A: 1}", "environment: !override {B: 2}", "{environment: {B: 2}}"),
        ] {
            let path = "services.*";
            let merged_node = merge(first(&service_of(base), path), &service_of(over), path);
            assert_eq!(shown(&merged_node), merged, "{base} / {over}");
        }
    }
}
