//! Compares the merged files with the table of fields.

use document::{DocumentNode, Field};

use crate::fields::{self, How, Support};
use crate::project::EXTENSION;
use crate::report::{NoteKind, Report};

/// In long form.
const LISTS: [&str; 3] = ["services.*.profiles", "services.*.env_file", "services.*.security_opt"];
const DEPENDS_ON: &str = "services.*.depends_on";

pub(crate) fn names(root: &DocumentNode, report: &mut Report) {
    walk(root, "", "", &mut |visited| match visited {
        Visited::Unknown { parent, field } => {
            report.mistake(field.place, fields::unknown(parent, field.name));
            false
        }
        Visited::Known { path, name, field, support, .. } => {
            if let Some(expected) = unfit(path, field.value, support) {
                let detail = format!("{name} must be {expected}, not {}", field.value.kind());
                report.mistake(field.value.place(), detail);
            }
            true
        }
    });
}

/// Another form would be ignored silently.
fn unfit(path: &str, value: &DocumentNode, support: Support) -> Option<&'static str> {
    let is_map = path == DEPENDS_ON || matches!(support, Support::Honoured(How::Parts));
    if is_map && !value.is_map() && !value.is_null() {
        return Some("a map of fields");
    }
    let is_list = LISTS.contains(&path) && value.items().is_none() && !value.is_null();
    is_list.then_some("a list")
}

pub(crate) fn effects(service: &str, node: &DocumentNode, report: &mut Report) {
    walk(node, fields::SERVICE, "", &mut |visited| {
        let Visited::Known { name, field, support, advice, .. } = visited else { return false };
        if field.value.is_blank() {
            return false;
        }
        match support {
            Support::Refused => {
                report.mistake(field.place, format!("{service}: {name} is not allowed: {advice}"));
            }
            Support::NotHonoured => {
                let detail = format!("{name} is not honoured: {advice}");
                report.note(NoteKind::NotHonoured, field.place, service, detail);
            }
            Support::Honoured(_) | Support::Declares => return true,
        }
        false
    });
}

enum Visited<'a> {
    Known { path: &'a str, name: &'a str, field: Field<'a>, support: Support, advice: &'static str },
    Unknown { parent: &'a str, field: Field<'a> },
}

/// Descends into a field if `visit` returns true.
fn walk(node: &DocumentNode, path: &str, name: &str, visit: &mut dyn FnMut(Visited<'_>) -> bool) {
    if let Some(items) = node.items() {
        items.iter().for_each(|item| walk(item, path, name, visit));
        return;
    }
    for field in node.fields() {
        let inner = fields::path_of(path, field.name);
        if field.name.starts_with(EXTENSION) && fields::row(&inner).is_none() {
            continue;
        }
        let name = if name.is_empty() { field.name.to_owned() } else { format!("{name}.{}", field.name) };
        let goes_on = match fields::row(&inner) {
            Some(row) => visit(Visited::Known {
                path: &inner,
                name: &name,
                field,
                support: row.support,
                advice: row.advice,
            }),
            // The user chose the name.
            None if inner.ends_with(".*") => true,
            None => visit(Visited::Unknown { parent: path, field }),
        };
        if goes_on && fields::has_parts(&inner) {
            walk(field.value, &inner, &name, visit);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::testing::service_of;

    #[test]
    fn unknown_fields_are_found_at_every_depth() {
        let mut report = Report::default();
        let text = "servces: {}\nx-a: 1\nservices:\n  web:\n    imgae: a\n    x-b: 1\n    deploy: {replica: 1}\n    \
                    ports: [{targt: 80}]\n    build: {what: ever}\n    environment: {ANY: 1}\n";
        names(&service_of(text), &mut report);
        let found: Vec<_> = report.into_mistakes().iter().map(|found| found.detail.clone()).collect();
        let expected = ["servces", "imgae", "replica", "targt"];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, name) in found.iter().zip(expected) {
            assert!(found.starts_with(&format!("unknown field {name:?}; did you mean")), "{found}");
        }
    }

    #[test]
    fn what_has_no_effect_is_noted_unless_it_says_nothing() {
        let mut report = Report::default();
        let text = "image: a\nplatform: linux/arm64\nvolumes_from: []\ndomainname: x\nprivileged: false\n";
        effects("web", &service_of(text), &mut report);
        assert!(!report.has_mistakes());
        let notes: Vec<_> = report.into_notes().into_iter().map(|note| note.finding.detail).collect();
        assert!(notes[0].starts_with("web: platform is not honoured: "), "{notes:?}");
        assert!(notes[1].starts_with("web: domainname is not honoured: ") && notes.len() == 2, "{notes:?}");
    }

    #[test]
    fn what_no_node_would_run_is_a_mistake() {
        let mut report = Report::default();
        effects("web", &service_of("image: a\nprivileged: true\n"), &mut report);
        let found = report.into_mistakes();
        assert!(found[0].detail.starts_with("web: privileged is not allowed: "), "{found:?}");
    }
}
