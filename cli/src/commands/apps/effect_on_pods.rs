//! The effect of a changed service on its pods. Pure.

use std::collections::BTreeSet;

use model::spec::{Kind, ServiceInput};
use output::humanize;
use serde_json::{Map, Value};
use store::is_same_specification;

/// `3 pods are replaced: image, user`. `scaled` is the time since it was scaled by hand, such as `3h`.
pub(crate) fn of_change(before: &ServiceInput, after: &ServiceInput, scaled: Option<&str>) -> String {
    let kept = fields(after);
    let changed = changed_fields(before, after).into_iter();
    let changed = changed.map(|name| match name.as_str() {
        "replicas" => {
            let by_hand = scaled.map(|ago| format!(" (scaled by hand {ago} ago)")).unwrap_or_default();
            format!("replicas {} → {}{by_hand}", before.replicas, after.replicas)
        }
        _ if kept.contains_key(&name) => name,
        _ => format!("{name} (removed)"),
    });
    let changed = changed.collect::<Vec<_>>().join(", ");
    if is_same_specification(&before.pod, &after.pod) {
        return format!("no pod is replaced: {changed}");
    }
    if after.pod.kind == Kind::Cron {
        return format!("no pod is replaced, the next jobs are others: {changed}");
    }
    if before.pod.mode.is_global() {
        return format!("its pods are replaced: {changed}");
    }
    let replaced = before.replicas.min(after.replicas);
    let is = if replaced == 1 { "is" } else { "are" };
    format!("{} {is} replaced: {changed}", humanize::count(u64::from(replaced), "pod"))
}

pub(crate) fn changed_fields(before: &ServiceInput, after: &ServiceInput) -> Vec<String> {
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

fn fields(input: &ServiceInput) -> Map<String, Value> {
    match serde_json::to_value(input) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_change_says_what_it_replaces_and_why() {
        let read = |yaml: &str| {
            let text = format!("name: web\n{yaml}");
            ServiceInput::read(&document::yaml(&text).0[0]).into_result().unwrap()
        };
        for (before, after, expected) in [
            ("image: a\nreplicas: 3", "image: b\nreplicas: 3", "3 pods are replaced: image"),
            (
                "image: a\nreplicas: 1\nlabels: {x: y}",
                "image: a\nuser: app\nreplicas: 3",
                "1 pod is replaced: labels (removed), replicas 1 → 3, user",
            ),
            ("image: a\nmode: global", "image: b\nmode: global", "its pods are replaced: image"),
            ("image: a\nreplicas: 3", "image: a\nreplicas: 5", "no pod is replaced: replicas 3 → 5"),
            ("image: a", "image: a\nupdate: {order: start-first}", "no pod is replaced: update"),
            (
                "image: a\ningress: [{host: web.example, port: 80}]",
                "image: a\nuser: app",
                "1 pod is replaced: ingress (removed), user",
            ),
            (
                "image: a\nkind: cron\ncron: {schedule: '@daily'}",
                "image: b\nkind: cron\ncron: {schedule: '@daily'}",
                "no pod is replaced, the next jobs are others: image",
            ),
            ("image: a", "image: a\nrestart: always", "no pod is replaced: "),
        ] {
            assert_eq!(of_change(&read(before), &read(after), None), expected);
        }
        let (six, four) = (read("image: a\nreplicas: 6"), read("image: a\nreplicas: 4"));
        let expected = "no pod is replaced: replicas 6 → 4 (scaled by hand 3h ago)";
        assert_eq!(of_change(&six, &four, Some("3h")), expected);
    }
}
