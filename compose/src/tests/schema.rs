//! Compares the table of fields with the published schema.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fields::{TABLE, has_parts, row};

const SCHEMA: &str = include_str!("../../tests/schema/compose-spec.json");

#[test]
fn the_table_has_every_field_of_the_published_schema_and_no_other() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut paths = BTreeSet::new();
    collect(&schema, &schema, "", &mut Vec::new(), &mut paths);
    assert!(paths.len() > 300, "the schema was not understood: {} fields", paths.len());
    let missing: Vec<_> = paths.iter().filter(|path| !is_covered(path)).collect();
    assert_eq!(missing, Vec::<&String>::new(), "fields without a row");
    let of_compose = TABLE.iter().map(|row| row.path).filter(|path| !path.contains(".x-kubeleet"));
    let unknown: Vec<_> = of_compose.filter(|path| !paths.contains(*path)).collect();
    assert_eq!(unknown, Vec::<&str>::new(), "rows that are no fields");
}

fn is_covered(path: &str) -> bool {
    if row(path).is_some() {
        return true;
    }
    let outer = path.match_indices('.').map(|(at, _)| &path[..at]);
    outer.filter(|outer| row(outer).is_some()).any(|outer| !has_parts(outer))
}

/// `way` has the references so far: some are circular.
fn collect(part: &Value, schema: &Value, path: &str, way: &mut Vec<String>, paths: &mut BTreeSet<String>) {
    if !part.is_object() {
        return;
    }
    if let Some(reference) = part["$ref"].as_str() {
        if way.iter().any(|known| known == reference) {
            return;
        }
        let definition = reference.trim_start_matches("#/definitions/");
        way.push(reference.to_owned());
        collect(&schema["definitions"][definition], schema, path, way, paths);
        way.pop();
        return;
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        for part in part[choice].as_array().into_iter().flatten() {
            collect(part, schema, path, way, paths);
        }
    }
    collect(&part["items"], schema, path, way, paths);
    let inner = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, part) in part["properties"].as_object().into_iter().flatten() {
        paths.insert(inner(name));
        collect(part, schema, &inner(name), way, paths);
    }
    let named = part["patternProperties"].as_object().into_iter().flatten();
    for (_, part) in named.filter(|(pattern, _)| *pattern != "^x-") {
        collect(part, schema, &inner("*"), way, paths);
    }
    if part["additionalProperties"].is_object() {
        collect(&part["additionalProperties"], schema, &inner("*"), way, paths);
    }
}
