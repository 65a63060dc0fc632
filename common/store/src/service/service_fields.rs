//! The field `fields` of `service:<name>`: [`ServiceFields`] as one JSON document.
//!
//! Another program may have written it. An unreadable value counts as missing, unless the service would then
//! be another one. Members of a newer version are kept.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::StoreError;
use crate::json::to_json;
use crate::reply::corrupt;
use model::ids::ServiceName;
use model::network::ingress::stored_rules;
use model::spec::{
    AllowFrom, CronPolicy, Kind, Placement, PlacementProfile, Preemption, Priority, ServiceFields,
};

pub(crate) type StoredFields = Map<String, Value>;

/// The most important change comes first; others are told by name.
const CHANGES: [(&str, &str); 14] = [
    ("labels", "its labels"),
    ("app", "its app"),
    ("depends_on", "its dependencies"),
    ("ingress", "its ingress"),
    ("allow_from", "who may reach it"),
    ("aliases", "its aliases"),
    ("update", "how it is updated"),
    ("placement", "where its pods may run"),
    ("scheduler", "how nodes are compared for its pods"),
    ("min_available", "how many stay while its pods are moved"),
    ("priority", "how early its pods are placed"),
    ("preemption", "whether pods are stopped for its own"),
    ("cron", "its schedule"),
    ("job", "how its jobs run"),
];

/// Returns the document that replaces `before`, and its first change in words.
pub(crate) fn replace(before: &[u8], fields: &ServiceFields) -> (String, String) {
    let mut after: StoredFields = serde_json::from_str(&to_json(fields)).expect("fields are a map");
    let Ok(before) = serde_json::from_slice::<StoredFields>(before) else {
        return (to_json(&after), "its description changed".to_owned());
    };
    let known = document::field_names::<ServiceFields>();
    let newer = before.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    after.extend(newer.map(|(name, value)| (name.clone(), value.clone())));
    (to_json(&after), change(&before, &after))
}

fn change(before: &StoredFields, after: &StoredFields) -> String {
    let is_changed = |name: &str| before.get(name) != after.get(name);
    let times = |document| member::<CronPolicy>(document, "cron").map(|cron| cron.times_text());
    let is_due = [before, after].map(|document| times(document).is_some_and(|times| !times.is_empty()));
    match CHANGES.iter().find(|(name, _)| is_changed(name)) {
        Some(("cron", _)) if is_due == [true, false] => "suspended: no job begins by itself".to_owned(),
        Some(("cron", _)) if is_due == [false, true] => "resumed".to_owned(),
        Some((_, words)) => format!("{words} changed"),
        None => {
            let other = before.keys().chain(after.keys()).find(|name| is_changed(name));
            other.map(|name| format!("its {name} changed")).unwrap_or_default()
        }
    }
}

pub(crate) fn member<T: DeserializeOwned>(document: &StoredFields, name: &str) -> Option<T> {
    serde_json::from_value(document.get(name)?.clone()).ok()
}

/// Names of the services that its rules name. A cron has no pods of its own.
pub(crate) fn related(fields: &ServiceFields, kind: Kind) -> String {
    let placement = fields.placement.iter().filter(|_| kind != Kind::Cron);
    let names = placement.flat_map(|placement| placement.relations()).map(|relation| relation.service);
    let names: BTreeSet<ServiceName> = names.collect();
    names.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(" ")
}

/// For one that cannot be read no pod is stopped.
fn preemption(value: Value) -> Option<Preemption> {
    if value.is_null() { None } else { Some(serde_json::from_value(value).unwrap_or(Preemption::Never)) }
}

/// How the pods of a service are placed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PlacementFields {
    pub(crate) placement: Placement,
    pub(crate) profile: Option<PlacementProfile>,
    pub(crate) priority: Priority,
    pub(crate) preemption: Option<Preemption>,
}

/// `fields` may be missing. Unreadable rules are one that no node satisfies; an unreadable profile or
/// priority is none.
pub(crate) fn placement(fields: &[u8]) -> PlacementFields {
    #[derive(Default, Deserialize)]
    struct Rules {
        #[serde(default)]
        placement: Option<Placement>,
        #[serde(default)]
        scheduler: Value,
        #[serde(default)]
        priority: Value,
        #[serde(default)]
        preemption: Value,
    }
    if fields.is_empty() {
        return PlacementFields::default();
    }
    match serde_json::from_slice::<Rules>(fields) {
        Ok(rules) => PlacementFields {
            placement: rules.placement.unwrap_or_default(),
            profile: serde_json::from_value(rules.scheduler).ok(),
            priority: serde_json::from_value(rules.priority).unwrap_or_default(),
            preemption: preemption(rules.preemption),
        },
        Err(why) => {
            let placement = Placement { constraints: vec![format!("({why})")], ..Placement::default() };
            PlacementFields { placement, ..PlacementFields::default() }
        }
    }
}

/// # Errors
/// `Corrupt` if a member is unreadable and has no safe default.
pub(crate) fn read(what: &str, text: &str, kind: Kind) -> Result<ServiceFields, StoreError> {
    let document: StoredFields =
        serde_json::from_str(text).map_err(|why| corrupt(what, format!("fields: {why}")))?;
    let ingress = document.get("ingress").map(stored_rules).unwrap_or_default();
    let whole = Value::Object(document);
    let fields = match ServiceFields::deserialize(&whole) {
        Ok(fields) => fields,
        Err(_) => read_each(what, whole, kind)?,
    };
    let job = (!kind.is_service()).then(|| fields.job.unwrap_or_default());
    let cron = fields.cron.filter(|_| kind == Kind::Cron);
    if kind == Kind::Cron && cron.is_none() {
        return Err(corrupt(what, "cron: it is missing"));
    }
    match cron.iter().flat_map(CronPolicy::violations).next() {
        Some(wrong) => Err(corrupt(what, format!("{}: {}", wrong.pointer, wrong.detail))),
        None => Ok(ServiceFields { ingress, job, cron, ..fields }),
    }
}

fn is_needed(field: &str, kind: Kind) -> bool {
    matches!(field, "labels" | "placement")
        || field == "job" && !kind.is_service()
        || field == "cron" && kind == Kind::Cron
}

fn read_each(what: &str, mut document: Value, kind: Kind) -> Result<ServiceFields, StoreError> {
    for (name, value) in document.as_object_mut().into_iter().flatten() {
        let Err(why) = serde_json::from_value::<ServiceFields>(json!({ name: &*value })) else { continue };
        *value = match name.as_str() {
            field if is_needed(field, kind) => return Err(corrupt(what, format!("{field}: {why}"))),
            // Stop no pod.
            "preemption" => json!(Preemption::Never),
            // Admit only its own pods.
            "allow_from" => json!(AllowFrom::default()),
            // Unreadable dependencies delay no pod, and a policy of a newer version cannot be followed.
            _ => Value::Null,
        };
    }
    document.as_object_mut().into_iter().for_each(|document| document.retain(|_, value| !value.is_null()));
    serde_json::from_value(document).map_err(|why| corrupt(what, format!("fields: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(value: Value) -> StoredFields {
        serde_json::from_value(value).expect("a map")
    }

    fn whole() -> Value {
        json!({
            "labels": {"team": "x"},
            "app": "shop",
            "depends_on": {"shop-db": "service_healthy"},
            "ingress": [{"host": "web.example", "path": "/", "port": 80, "protocol": "http"}],
            "allow_from": ["shop-web"],
            "aliases": ["db.internal"],
            "update": {"order": "start-first", "on_failure": "rollback"},
            "placement": {"constraints": ["disk == ssd"]},
            "scheduler": "pack",
            "min_available": "75%",
            "priority": 10,
            "preemption": "never",
            "job": {"completions": 3, "parallelism": 2},
            "cron": {"schedule": "30 2 * * *", "history": {"successful": 3, "failed": 1}},
        })
    }

    #[test]
    fn every_field_of_a_service_is_read_as_it_was_stored() {
        let given = document(whole());
        for name in document::field_names::<ServiceFields>() {
            assert!(given.contains_key(name), "the document above lacks {name}");
        }
        let fields: ServiceFields = serde_json::from_value(whole()).expect("fields");
        let (stored, change) = replace(br#"{"labels":{"team":"x"},"later":1}"#, &fields);
        assert_eq!(change, "its app changed");
        let stored: StoredFields = serde_json::from_str(&stored).expect("a map");
        assert_eq!(stored.get("later"), Some(&json!(1)), "a member of a newer version is kept");
        assert!(given.iter().all(|(name, value)| stored.get(name) == Some(value)), "{stored:?}");
        assert_eq!(read("a service", &to_json(&stored), Kind::Cron).expect("readable"), fields);
        for none in ["", "[]", "{"] {
            assert_eq!(replace(none.as_bytes(), &fields).1, "its description changed");
        }
    }

    #[test]
    fn an_unreadable_member_harms_no_other() {
        let with = |name: &str, value: Value| {
            let mut stored = document(whole());
            stored.insert(name.to_owned(), value);
            read("a service", &to_json(&stored), Kind::Cron)
        };
        let whole: ServiceFields = serde_json::from_value(whole()).expect("fields");
        for (name, value, expected) in [
            ("app", json!("No App"), ServiceFields { app: None, ..whole.clone() }),
            ("depends_on", json!(7), ServiceFields { depends_on: Default::default(), ..whole.clone() }),
            ("ingress", json!("all"), ServiceFields { ingress: Vec::new(), ..whole.clone() }),
            ("ingress", json!([{"port": 0}, whole.ingress[0]]), whole.clone()),
            (
                "allow_from",
                json!("all"),
                ServiceFields { allow_from: Some(AllowFrom::default()), ..whole.clone() },
            ),
            ("aliases", json!({}), ServiceFields { aliases: Default::default(), ..whole.clone() }),
            ("update", json!({"order": "sideways"}), ServiceFields { update: None, ..whole.clone() }),
            ("scheduler", json!("newest"), ServiceFields { scheduler: None, ..whole.clone() }),
            ("min_available", json!("most"), ServiceFields { min_available: None, ..whole.clone() }),
            ("priority", json!(1001), ServiceFields { priority: None, ..whole.clone() }),
            (
                "preemption",
                json!("always"),
                ServiceFields { preemption: Some(Preemption::Never), ..whole.clone() },
            ),
        ] {
            assert_eq!(with(name, value).expect(name), expected, "{name}");
        }
        for (name, wrong) in
            [("labels", json!([[]])), ("placement", json!(7)), ("job", json!([[]])), ("cron", json!([[]]))]
        {
            let error = with(name, wrong).expect_err(name).to_string();
            assert!(error.contains(&format!("{name}: ")), "{error}");
        }
        assert!(with("cron", json!({"schedule": "often"})).is_err());
        assert!(read("a service", "", Kind::Service).is_err());
    }

    #[test]
    fn the_profile_and_the_priority_of_a_service_are_read_beside_its_rules() {
        for (fields, profile, priority) in [
            ("", None, 0),
            (r#"{}"#, None, 0),
            (r#"{"scheduler": null, "priority": null}"#, None, 0),
            (r#"{"scheduler": "round-robin"}"#, Some(PlacementProfile::RoundRobin), 0),
            (r#"{"scheduler": "newest", "priority": -7}"#, None, -7),
            (r#"{"scheduler": {"name": "newest"}}"#, None, 0),
            (r#"{"scheduler": "pack", "priority": 1001}"#, Some(PlacementProfile::Pack), 0),
            (r#"{"priority": {"class": "high"}}"#, None, 0),
        ] {
            let priority = Priority::new(priority).expect("it is valid");
            let expected = PlacementFields { profile, priority, ..PlacementFields::default() };
            assert_eq!(placement(fields.as_bytes()), expected, "{fields}");
        }
        for (fields, expected) in [
            (r#"{"preemption": null}"#, None),
            (r#"{"preemption": "lower"}"#, Some(Preemption::Lower)),
            (r#"{"preemption": "sometimes"}"#, Some(Preemption::Never)),
        ] {
            assert_eq!(placement(fields.as_bytes()).preemption, expected, "{fields}");
        }
    }

    #[test]
    fn the_first_change_is_told_in_words() {
        let cron = |suspend: bool| json!({"schedule": "@daily", "suspend": suspend});
        for (before, after, said) in [
            (whole(), whole(), ""),
            (json!({}), json!({"labels": {"a": "b"}, "app": "shop"}), "its labels changed"),
            (json!({"allow_from": []}), json!({"update": {}}), "who may reach it changed"),
            (json!({"cron": cron(false)}), json!({"cron": cron(true)}), "suspended: no job begins by itself"),
            (json!({"cron": cron(true)}), json!({"cron": cron(false)}), "resumed"),
            (
                json!({"cron": cron(true)}),
                json!({"cron": {"schedule": "@hourly", "suspend": true}}),
                "its schedule changed",
            ),
            (json!({}), json!({"later": 1}), "its later changed"),
        ] {
            assert_eq!(change(&document(before), &document(after)), said);
        }
    }
}
