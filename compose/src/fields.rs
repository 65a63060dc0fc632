//! All fields of the Compose specification with their support; a test compares them with the published
//! schema.
//!
//! To honour a field, change its row to `honoured("…", function, "…")` and write the function in
//! [`crate::translate`].

mod row;
mod table;

use document::nearest;
pub(crate) use row::{FieldRow, How, SERVICE, Support};
pub(crate) use table::TABLE;

use crate::translate::Translate;

pub(crate) fn path_of(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        return name.to_owned();
    }
    let any = format!("{parent}.*");
    let has_names = TABLE.iter().any(|row| row.path == any || row.path.starts_with(&format!("{any}.")));
    if has_names { any } else { format!("{parent}.{name}") }
}

pub(crate) fn row(path: &str) -> Option<&'static FieldRow> {
    TABLE.iter().find(|row| row.path == path)
}

pub(crate) fn advice_if_not_honoured(path: &str) -> Option<&'static str> {
    row(path).filter(|row| matches!(row.support, Support::NotHonoured)).map(|row| row.advice)
}

pub(crate) fn has_parts(path: &str) -> bool {
    let prefix = format!("{path}.");
    path.is_empty() || TABLE.iter().any(|row| row.path.starts_with(&prefix))
}

pub(crate) fn translated() -> impl Iterator<Item = (&'static str, Translate)> {
    TABLE.iter().filter_map(|row| match row.support {
        Support::Honoured(How::Translated(translate)) => {
            Some((row.path.strip_prefix(SERVICE)?.strip_prefix('.')?, translate))
        }
        _ => None,
    })
}

pub(crate) fn unknown(parent: &str, name: &str) -> String {
    let prefix = if parent.is_empty() { String::new() } else { format!("{parent}.") };
    let names = TABLE.iter().filter_map(|row| row.path.strip_prefix(&prefix)?.split('.').next());
    let known: Vec<&str> = names.collect();
    let start = format!("unknown field {name:?}");
    match nearest(name, &known) {
        Some(near) => format!("{start}; did you mean {near:?}?"),
        None => format!("{start}: Compose has none of that name here; `x-{name}` is for notes of your own"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_have_a_star_where_any_name_may_stand() {
        for (parent, name, path) in [
            ("", "services", "services"),
            ("services", "web", "services.*"),
            ("services.*", "image", "services.*.image"),
            ("services.*.depends_on", "db", "services.*.depends_on.*"),
            ("services.*.deploy", "replicas", "services.*.deploy.replicas"),
        ] {
            assert_eq!(path_of(parent, name), path);
        }
    }

    #[test]
    fn a_mistyped_field_is_corrected() {
        for (parent, name, near) in [
            ("", "service", "services"),
            ("services.*", "enviroment", "environment"),
            ("services.*", "env", "environment"),
            ("services.*.deploy", "replica", "replicas"),
        ] {
            assert!(unknown(parent, name).ends_with(&format!("did you mean {near:?}?")), "{name}");
        }
        assert!(unknown("services.*", "colour").contains("x-colour"));
    }

    #[test]
    fn each_row_stands_once_and_says_what_to_do_instead() {
        let mut seen = BTreeSet::new();
        for row in TABLE {
            assert!(seen.insert(row.path), "{} stands twice", row.path);
            let needs_advice = !matches!(row.support, Support::Honoured(_));
            assert!(!needs_advice || !row.advice.is_empty(), "{} has no advice", row.path);
        }
    }
}
