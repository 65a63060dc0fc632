//! The fields of the hash `service:<name>`.

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::json::to_json;
use crate::reply::{HashFields, corrupt};
use model::ids::AppName;
use model::network::ingress::stored_rules;
use model::spec::{AllowFrom, CronPolicy, Kind, ServiceFields, UpdateOrder, UpdatePolicy};

/// Returns the fields that scripts store unchanged, each with its name in the hash: JSON, or `""` if missing.
pub(crate) fn passed_on(fields: &ServiceFields) -> Vec<(&'static str, String)> {
    // The scripts interpret the others, which are separate arguments.
    let ServiceFields {
        labels: _,
        app: _,
        depends_on,
        ingress,
        allow_from,
        aliases,
        update: _,
        job: _,
        cron: _,
    } = fields;
    vec![
        ("depends_on", json_unless(depends_on.is_empty(), depends_on)),
        ("ingress", json_unless(ingress.is_empty(), ingress)),
        ("allow_from", json_of(allow_from.as_ref())),
        ("aliases", json_unless(aliases.is_empty(), aliases)),
    ]
}

/// The value of `update`. The previous version stored no order for `stop-first`, even if given: its policies
/// keep that order until they are applied again.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredPolicy {
    #[serde(flatten)]
    policy: UpdatePolicy,
    /// True if the user omitted the order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    order_left_out: bool,
}

impl StoredPolicy {
    pub(crate) fn of(policy: &UpdatePolicy) -> Self {
        Self { policy: policy.clone(), order_left_out: policy.order.is_none() }
    }

    fn policy(self) -> UpdatePolicy {
        let order = self.policy.order.or((!self.order_left_out).then_some(UpdateOrder::StopFirst));
        UpdatePolicy { order, ..self.policy }
    }
}

pub(crate) fn json_of<T: Serialize>(value: Option<&T>) -> String {
    value.map(to_json).unwrap_or_default()
}

fn json_unless<T: Serialize>(is_empty: bool, value: &T) -> String {
    if is_empty { String::new() } else { to_json(value) }
}

/// Reads the fields of a service of this kind.
///
/// # Errors
/// `Corrupt` if a field is unreadable and has no safe default.
pub(crate) fn read(what: &str, stored: &HashFields<'_>, kind: Kind) -> Result<ServiceFields, StoreError> {
    Ok(ServiceFields {
        labels: stored.json("labels")?,
        // An invalid app name groups nothing.
        app: AppName::new(stored.text("app")).ok(),
        // Like workers, treat an unreadable list as empty: it delays no pod.
        depends_on: stored.json("depends_on").unwrap_or_default(),
        ingress: stored_rules(&stored.text("ingress")),
        // If unreadable, admit only its own pods.
        allow_from: allow_from(&stored.text("allow_from")),
        aliases: stored.json("aliases").unwrap_or_default(),
        // A policy of a newer version is ignored, since this version cannot follow it.
        update: stored.json::<Option<StoredPolicy>>("update").unwrap_or_default().map(StoredPolicy::policy),
        job: if kind.is_service() { None } else { Some(stored.json("job")?) },
        cron: if kind == Kind::Cron { Some(cron(what, stored)?) } else { None },
    })
}

fn allow_from(text: &str) -> Option<AllowFrom> {
    (!text.is_empty()).then(|| serde_json::from_str(text).unwrap_or_default())
}

fn cron(what: &str, stored: &HashFields<'_>) -> Result<CronPolicy, StoreError> {
    let policy: CronPolicy = serde_json::from_str(&stored.text("cron"))
        .map_err(|error| corrupt(what, format!("cron: {error}")))?;
    match policy.violations().into_iter().next() {
        Some(wrong) => Err(corrupt(what, format!("{}: {}", wrong.pointer, wrong.detail))),
        None => Ok(policy),
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_of_the_version_before_keeps_stopping_first() {
        let read = |json: &str| serde_json::from_str::<StoredPolicy>(json).expect("a policy").policy().order;
        assert_eq!(read(r#"{"on_failure":"pause"}"#), Some(UpdateOrder::StopFirst));
        for order in [None, Some(UpdateOrder::StartFirst), Some(UpdateOrder::StopFirst)] {
            let policy = UpdatePolicy { order, ..UpdatePolicy::default() };
            assert_eq!(read(&to_json(&StoredPolicy::of(&policy))), order);
        }
    }

    #[test]
    fn every_field_of_a_service_is_read_as_it_was_stored() {
        let document = json!({
            "labels": {"team": "x"},
            "app": "shop",
            "depends_on": {"shop-db": "service_healthy"},
            "ingress": [{"host": "web.example", "path": "/", "port": 80, "protocol": "http"}],
            "allow_from": ["shop-web"],
            "aliases": ["db.internal"],
            "update": {"order": "start-first", "on_failure": "rollback"},
            "job": {"completions": 3, "parallelism": 2},
            "cron": {"schedule": "30 2 * * *", "history": {"successful": 3, "failed": 1}},
        });
        let given = document.as_object().expect("a map");
        for name in document::field_names::<ServiceFields>() {
            assert!(given.contains_key(name), "the document above lacks {name}");
        }
        let fields: ServiceFields = serde_json::from_value(document.clone()).expect("fields");
        let passed = passed_on(&fields);
        for (name, text) in &passed {
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(text).ok().as_ref(),
                given.get(*name),
                "{name}"
            );
        }
        let others = given.iter().filter(|(name, _)| !passed.iter().any(|(passed, _)| passed == name));
        let text =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let others = others.map(|(name, value)| (name.as_str(), text(value)));
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let hash = others.chain(passed.iter().map(|(name, text)| (*name, text.clone())));
        let hash = Value::Array(hash.flat_map(|(name, text)| [bytes(name), bytes(&text)]).collect());
        let stored = HashFields::read("a service", hash).expect("a hash").expect("fields");
        assert_eq!(read("a service", &stored, Kind::Cron).expect("readable"), fields);
    }
}
