//! `stateful`: pods that are not alike. Each is known by its number, its ordinal, which names its volumes.
//!
//! Tests: beside the code

use std::fmt;
use std::num::NonZeroU64;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::Violation;
use super::placement::{count_violation, label_of, label_violation};
use super::units;

/// `true` for the defaults, or a map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stateful {
    by: String,
    zones: Option<NonZeroU64>,
    start: OrdinalStart,
}

/// When an ordinal starts that no pod had before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrdinalStart {
    /// When all lower ones are ready.
    #[default]
    Ordered,
    Parallel,
}

impl Default for Stateful {
    fn default() -> Self {
        Self { by: "zone".to_owned(), zones: None, start: OrdinalStart::default() }
    }
}

impl Stateful {
    /// The label whose values are the zones, or `node.hostname`.
    pub fn key(&self) -> &str {
        label_of(&self.by)
    }

    /// While fewer zones have a node for its pods, new ones wait.
    pub fn least_zones(&self) -> u64 {
        self.zones.map_or(0, NonZeroU64::get)
    }

    pub fn starts_in_order(&self) -> bool {
        self.start == OrdinalStart::Ordered
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let zones = self.zones.and_then(|zones| count_violation(zones, "/stateful/zones"));
        label_violation(&self.by, "/stateful/by").into_iter().chain(zones).collect()
    }
}

impl Serialize for Stateful {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::default() {
            return serializer.serialize_bool(true);
        }
        let Self { by, zones, start } = self;
        let mut fields = serializer.serialize_struct("Stateful", 3)?;
        fields.serialize_field("by", by)?;
        match zones {
            Some(zones) => fields.serialize_field("zones", zones)?,
            None => fields.skip_field("zones")?,
        }
        fields.serialize_field("start", start)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Stateful {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let without = || de::Error::invalid_value(de::Unexpected::Bool(false), &StatefulReader);
        deserializer.deserialize_any(StatefulReader)?.ok_or_else(without)
    }
}

/// `false` is as if it was left out.
pub(super) fn unless_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Stateful>, D::Error> {
    struct Choice(Option<Stateful>);
    impl<'de> Deserialize<'de> for Choice {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(StatefulReader).map(Self)
        }
    }
    Ok(Option::<Choice>::deserialize(deserializer)?.and_then(|Choice(stateful)| stateful))
}

struct StatefulReader;

impl<'de> Visitor<'de> for StatefulReader {
    type Value = Option<Stateful>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, or a map with by, zones and start")
    }
    fn visit_bool<E: de::Error>(self, is_stateful: bool) -> Result<Self::Value, E> {
        Ok(is_stateful.then(Stateful::default))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            by: Option<String>,
            #[serde(default, deserialize_with = "units::optional_at_least_one")]
            zones: Option<NonZeroU64>,
            #[serde(default)]
            start: OrdinalStart,
        }
        let Fields { by, zones, start } = Fields::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Some(Stateful { by: by.unwrap_or_else(|| Stateful::default().by), zones, start }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use crate::spec::{DesiredService, OnDisconnect, PodSpec, ServiceInput, UpdatePolicy};

    fn service(fields: serde_json::Value) -> Result<DesiredService, Vec<String>> {
        let mut input = json!({"name": "db", "image": "a"});
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mistakes = |all: Vec<document::Mistake>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let input = ServiceInput::from_value(&input).map_err(mistakes)?;
        input.normalize().map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn it_is_true_or_a_map_and_is_read_again_as_it_was_written() {
        for (given, written, key, zones, is_ordered) in [
            (json!(true), json!(true), "zone", 0, true),
            (json!({}), json!(true), "zone", 0, true),
            (
                json!({"by": "node.labels.rack", "zones": 3.0, "start": "parallel"}),
                json!({"by": "node.labels.rack", "zones": 3, "start": "parallel"}),
                "rack",
                3,
                false,
            ),
            (
                json!({"by": "node.hostname"}),
                json!({"by": "node.hostname", "start": "ordered"}),
                "node.hostname",
                0,
                true,
            ),
        ] {
            let pod = service(json!({"stateful": given})).unwrap().pod;
            let stateful = pod.stateful.clone().unwrap();
            let found = (stateful.key(), stateful.least_zones(), stateful.starts_in_order());
            assert_eq!(found, (key, zones, is_ordered), "{given}");
            let stored = serde_json::to_value(&pod).unwrap();
            assert_eq!(stored["stateful"], written, "{given}");
            assert_eq!(serde_json::from_value::<PodSpec>(stored).unwrap(), pod);
        }
        for without in [json!({"stateful": false}), json!({"stateful": null}), json!({})] {
            assert_eq!(service(without.clone()).unwrap().pod.stateful, None, "{without}");
        }
    }

    #[test]
    fn what_cannot_be_is_told_with_its_place() {
        for (fields, expected) in [
            (json!({"stateful": {"by": ""}}), "/stateful/by: is a label of the nodes"),
            (json!({"stateful": {"by": "node.id"}}), "/stateful/by: is a label of the nodes"),
            (json!({"stateful": {"zones": 100_001}}), "/stateful/zones: is at most 100000"),
            (json!({"stateful": 3}), "stateful must be true, or a map with by, zones and start"),
            (json!({"stateful": true, "kind": "job"}), "/stateful: is for services"),
            (
                json!({"stateful": true, "update": {"order": "start-first"}}),
                "/update: a stateful pod cannot run beside its successor: use `order: stop-first`",
            ),
            (
                json!({"stateful": true, "on_disconnect": "keep", "update": {"max_surge": 1}}),
                "/update: a stateful pod",
            ),
        ] {
            let found = service(fields.clone()).unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{fields}: {found:?}");
        }
        for wrong in [json!({"zones": 0}), json!({"start": "sideways"}), json!({"zone": 3})] {
            assert!(service(json!({"stateful": wrong.clone()})).is_err(), "{wrong}");
        }
    }

    #[test]
    fn its_pods_never_run_twice_and_are_replaced_one_by_one() {
        let pod = service(json!({"stateful": true})).unwrap().pod;
        assert_eq!((pod.on_disconnect, pod.needs_only_image()), (OnDisconnect::Stop, false));
        for (policy, unavailable) in
            [(json!({}), 1), (json!({"parallelism": 3}), 3), (json!({"max_unavailable": 2}), 2)]
        {
            let policy: UpdatePolicy = serde_json::from_value(policy).unwrap();
            let resolved = policy.resolved(&pod);
            assert_eq!(
                (resolved.max_unavailable(20), resolved.max_surge(20)),
                (unavailable, 0),
                "{policy:?}"
            );
        }
        let kept = service(json!({"stateful": true, "on_disconnect": "keep"})).unwrap().pod;
        assert_eq!(kept.on_disconnect, OnDisconnect::Keep);
        assert_eq!(UpdatePolicy::without_policy(&kept).max_surge(20), 0);
    }
}
