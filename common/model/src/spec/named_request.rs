//! `resources` of a service: how many ids of each named resource a pod gets.
//!
//! Tests: beside the code

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::Violation;
use crate::ids::ResourceName;
use crate::node::ResourceIds;
use crate::node::named_resources::field_of_amount;
use document::json_pointer;

/// The named resources that a pod asks for. Stored as `{"gpu": 1}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct NamedRequest(BTreeMap<ResourceName, u64>);

impl NamedRequest {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, u64)> {
        self.0.iter().map(|(name, count)| (name, *count))
    }

    pub fn get(&self, name: &ResourceName) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether the ids are as many of each as this asks for.
    pub fn is_met_by(&self, ids: &ResourceIds) -> bool {
        self.iter().all(|(name, count)| ids.count(name) == count)
    }

    /// With at most `most` of each; `None` if of one nothing is left.
    pub fn lowered(&self, most: impl Fn(&ResourceName) -> u64) -> Option<Self> {
        let less = self.iter().map(|(name, count)| (name.clone(), count.min(most(name))));
        let less: BTreeMap<ResourceName, u64> = less.collect();
        less.values().all(|count| *count > 0).then_some(Self(less))
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        if self.0.len() > ResourceIds::MAX_NAMES {
            let why = format!("asks for at most {} resources", ResourceIds::MAX_NAMES);
            found.push(Violation::new("/resources", why));
        }
        for (name, count) in self.iter() {
            let why = match field_of_amount(name) {
                Some(field) => format!("is no resource that nodes declare: use `{field}`"),
                None if count > ResourceIds::MAX_IDS as u64 => format!("is at most {}", ResourceIds::MAX_IDS),
                None => continue,
            };
            let pointer = format!("/resources/{}", json_pointer::escape(name.as_str()));
            found.push(Violation::new(pointer, why));
        }
        found
    }
}

/// As in scripts and messages: `gpu=1 slots=2`.
impl fmt::Display for NamedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, count)) in self.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={count}")?;
        }
        Ok(())
    }
}

impl FromIterator<(ResourceName, u64)> for NamedRequest {
    fn from_iter<I: IntoIterator<Item = (ResourceName, u64)>>(counts: I) -> Self {
        Self(counts.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for NamedRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = NamedRequest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names of resources to numbers, such as gpu: 1")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut counts = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let name = ResourceName::new(name).map_err(de::Error::custom)?;
                    let Count(count) = map.next_value()?;
                    counts.insert(name, count);
                }
                Ok(NamedRequest(counts))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::units::at_least_one(deserializer).map(|count| Self(count.get()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::{DesiredService, PodSpec, ServiceInput, UpdateOrder};

    fn service(fields: serde_json::Value) -> Result<DesiredService, Vec<String>> {
        let mut input = json!({"name": "train", "image": "a"});
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mistakes = |all: Vec<document::Mistake>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let input = ServiceInput::from_value(&input).map_err(mistakes)?;
        input.normalize().map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn it_is_a_map_and_is_read_again_as_it_was_written() {
        for (given, words) in [
            (json!({"gpu": 1}), "gpu=1"),
            (json!({"slots": 2, "gpu": 1.0}), "gpu=1 slots=2"),
            (json!({}), ""),
            (json!(null), ""),
        ] {
            let pod = service(json!({"resources": given.clone()})).unwrap().pod;
            assert_eq!(pod.resources.to_string(), words, "{given}");
            let stored = serde_json::to_value(&pod).unwrap();
            assert_eq!(serde_json::from_value::<PodSpec>(stored.clone()).unwrap(), pod);
            assert_eq!(stored.get("resources").is_none(), words.is_empty(), "{stored}");
        }
    }

    #[test]
    fn what_cannot_be_is_told_with_its_place() {
        for (given, expected) in [
            (json!({"memory": 1}), "/resources/memory: is no resource that nodes declare: use `memory`"),
            (json!({"cpu": 1}), "/resources/cpu: is no resource that nodes declare: use `cpus`"),
            (json!({"gpu": 1025}), "/resources/gpu: is at most 1024"),
        ] {
            assert_eq!(service(json!({"resources": given})).unwrap_err(), [expected]);
        }
        for wrong in
            [json!({"gpu": 0}), json!({"GPU": 1}), json!({"gpu": "x"}), json!({"gpu": -1}), json!([1])]
        {
            let found = service(json!({"resources": wrong.clone()})).unwrap_err();
            assert!(found.len() == 1 && found[0].contains("resources"), "{wrong}: {found:?}");
        }
    }

    #[test]
    fn such_a_pod_is_replaced_in_its_place_and_no_external_worker_runs_it() {
        let pod = service(json!({"resources": {"gpu": 1}})).unwrap().pod;
        assert_eq!(UpdateOrder::of_pods(&pod), UpdateOrder::StopFirst);
        assert!(!pod.needs_only_image());
        let job = service(json!({"resources": {"gpu": 1}, "kind": "job"})).unwrap().pod;
        assert_eq!(job.resources, pod.resources);
    }

    #[test]
    fn a_request_is_lowered_only_if_something_is_left_of_each() {
        let request = service(json!({"resources": {"gpu": 3, "slots": 1}})).unwrap().pod.resources;
        let lowered = |gpu: u64, slots: u64| {
            request
                .lowered(|name| if name.as_str() == "gpu" { gpu } else { slots })
                .map(|less| less.to_string())
        };
        assert_eq!(lowered(2, 9).as_deref(), Some("gpu=2 slots=1"));
        assert_eq!(lowered(2, 0), None);
        let ids = |text| ResourceIds::from_text(text);
        assert!(request.is_met_by(&ids("gpu/0 gpu/1 gpu/7 slots/0")));
        assert!(!request.is_met_by(&ids("gpu/0 gpu/1 slots/0")));
    }
}
