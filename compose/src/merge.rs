//! Merges Compose files, and services with their base.

use document::{DocumentNode, Field};

use crate::compose_document::text_of;
use crate::fields;
use crate::forms::{PORTS, long_form};
use crate::translate::ports;

const REPLACED: [&str; 3] = ["services.*.command", "services.*.entrypoint", "services.*.healthcheck.test"];

/// An item replaces an earlier one with the same target.
const BY_TARGET: [&str; 3] = ["services.*.volumes", "services.*.secrets", "services.*.configs"];

const ENV_FILES: &str = "services.*.env_file";

/// `null` is a value and overrides.
const WITH_NULLS: [&str; 4] =
    ["services.*.environment", "services.*.labels", "services.*.annotations", "services.*.deploy.labels"];

/// Replaced as a whole if the driver differs.
const LOGGING: &str = "services.*.logging";

/// The long form of a map without `!reset`, as the start of a merge.
pub(crate) fn first(node: &DocumentNode, path: &str) -> DocumentNode {
    merge(DocumentNode::empty_map(node.place()), node, path)
}

pub(crate) fn merge(base: DocumentNode, over: &DocumentNode, path: &str) -> DocumentNode {
    let none = || DocumentNode::null(over.place());
    let base = match over.tag() {
        Some("!reset") => return none(),
        Some("!override") => none(),
        _ => base,
    };
    let over = long_form(path, over.clone());
    if over.is_null() && !base.is_blank() {
        return if REPLACED.contains(&path) { over } else { base };
    }
    if over.is_map() && (base.is_map() || base.is_null()) {
        let base = if path == LOGGING && has_other_driver(&base, &over) { none() } else { base };
        return merge_maps(base, &over, path);
    }
    match (base.items(), over.items()) {
        (_, None) => over,
        (None, Some(items)) if has_keys(path) => {
            DocumentNode::list(merge_lists(&[], items, path), over.place())
        }
        (Some(before), Some(after)) if !REPLACED.contains(&path) => {
            DocumentNode::list(merge_lists(before, after, path), over.place())
        }
        _ => over,
    }
}

fn has_other_driver(base: &DocumentNode, over: &DocumentNode) -> bool {
    text_of(base, "driver").zip(text_of(over, "driver")).is_some_and(|(before, after)| before != after)
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
        if value.is_null() && WITH_NULLS.contains(&path) {
            base.set(name, place, value.clone());
            continue;
        }
        let path = fields::path_of(path, name);
        let before = base.get(name).cloned().unwrap_or_else(|| DocumentNode::null(place));
        let merged = merge(before, value, &path);
        base.set(name, place, merged);
    }
    base
}

fn has_keys(path: &str) -> bool {
    BY_TARGET.contains(&path) || path == PORTS || path == ENV_FILES
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

/// Items without a key are distinct.
fn key_of(item: &DocumentNode, path: &str) -> Option<String> {
    if BY_TARGET.contains(&path) {
        return target(item);
    }
    if path == PORTS {
        return ports::key(item);
    }
    if path == ENV_FILES && item.is_map() {
        return text_of(item, "path");
    }
    item.scalar().map(|text| text.into_owned())
}

fn target(item: &DocumentNode) -> Option<String> {
    let target = target_as_written(item)?;
    let plain = target.strip_prefix("/run/secrets/").unwrap_or(&target);
    let plain = plain.trim_end_matches('/');
    Some(if plain.is_empty() { target } else { plain.to_owned() })
}

fn target_as_written(item: &DocumentNode) -> Option<String> {
    if item.is_map() {
        return text_of(item, "target").or_else(|| text_of(item, "source"));
    }
    let short = item.scalar()?.into_owned();
    let parts: Vec<&str> = short.split(':').collect();
    Some(match parts.as_slice() {
        [_, target, ..] => (*target).to_owned(),
        _ => short,
    })
}

/// Wherever they stand.
pub(crate) fn is_same(one: &DocumentNode, other: &DocumentNode) -> bool {
    let fields = |node: &DocumentNode| node.fields().count();
    if one.is_map() && other.is_map() {
        let has_same =
            |field: Field<'_>| other.get(field.name).is_some_and(|value| is_same(field.value, value));
        return fields(one) == fields(other) && one.fields().all(has_same);
    }
    match (one.items(), other.items()) {
        (Some(one), Some(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        _ => one.kind() == other.kind() && one.scalar() == other.scalar(),
    }
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
                "{depends_on: {a: {condition: service_started, required: true}, b: {condition: x}}}",
            ),
            ("env_file: a", "env_file: [b]", "{env_file: [a, b]}"),
            (
                "depends_on: {a: {condition: x, required: false}}",
                "depends_on: [a]",
                "{depends_on: {a: {condition: service_started, required: true}}}",
            ),
            ("ports: ['80:80']", "ports: ['80:80/tcp', '81:81']", "{ports: [80:80/tcp, 81:81]}"),
            ("ports: ['80:80', '80:80/tcp']", "ports: ['0.0.0.0:80:80']", "{ports: [0.0.0.0:80:80]}"),
            ("ports: ['1-2:1-2']", "ports: ['2:2', '2:2/udp']", "{ports: [1:1/tcp, 2:2, 2:2/udp]}"),
            ("env_file: [a, b, {path: a}]", "env_file: c", "{env_file: [{path: a}, b, c]}"),
            ("environment: {A: 1, B: 2}", "environment: [A]", "{environment: {A: null, B: 2}}"),
            ("labels: {a: 1}", "labels: {a: }", "{labels: {a: null}}"),
            ("command: a\nentrypoint: b", "command:\nentrypoint:", "{command: null, entrypoint: null}"),
            ("command: a\nuser: b", "command: !reset []\nuser:", "{user: b}"),
            (
                "logging: {driver: a, options: {x: 1}}",
                "logging: {options: {y: 2}}",
                "{logging: {driver: a, options: {x: 1, y: 2}}}",
            ),
            (
                "logging: {driver: a, options: {x: 1}}",
                "logging: {driver: b, options: {y: 2}}",
                "{logging: {driver: b, options: {y: 2}}}",
            ),
            ("volumes: ['aa:/x/']", "volumes: ['bb:/x']", "{volumes: [bb:/x]}"),
            ("secrets: [{source: a, target: /run/secrets/a}]", "secrets: [a]", "{secrets: [a]}"),
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
            // docker/compose#13356: a value rewritten to the long form keeps its tag.
            ("environment: [A=1]", "environment: !override ['C=3']", "{environment: {C: 3}}"),
            ("labels: {a: 1}", "labels: !override [x=3]", "{labels: {x: 3}}"),
            ("networks: [n]", "networks: !override [m]", "{networks: {m: null}}"),
            ("env_file: a", "env_file: !override b", "{env_file: [b]}"),
            ("tmpfs: /a", "tmpfs: !override /b", "{tmpfs: [/b]}"),
            ("command: [a]", "command: !override b", "{command: b}"),
            (
                "healthcheck: {test: a, retries: 2}",
                "healthcheck: !override {test: b}",
                "{healthcheck: {test: b}}",
            ),
            (
                "depends_on: [b]",
                "depends_on: !override [c]",
                "{depends_on: {c: {condition: service_started, required: true}}}",
            ),
        ] {
            let path = "services.*";
            let merged_node = merge(first(&service_of(base), path), &service_of(over), path);
            assert_eq!(shown(&merged_node), merged, "{base} / {over}");
        }
    }
}
