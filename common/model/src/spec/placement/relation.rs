//! `affinity` and `anti_affinity`: the services whose pods those of a service are near to, or away from.
//!
//! Tests: beside the code

use serde::{Deserialize, Serialize};

use super::checks::{default_weight, label_of, label_violation, weight_violation};
use super::node_constraint::HOST_NAME;
use crate::ids::ServiceName;
use crate::spec::allow_from::whole;
use crate::spec::{Violation, units};

const MAX_RELATIONS: usize = 16;
/// As `node.hostname`.
const NODE: &str = "node";

/// Pods go where pods of a service are: to the same node, or to one with the same value of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Another service, or the service itself. Named as in `allow_from`.
    #[schema(example = "cache")]
    pub service: String,
    /// A label, or `node`.
    #[serde(default = "default_by")]
    #[schema(example = "zone")]
    pub by: String,
    /// Without a pod of that service a pod waits. The first one of the service itself may go anywhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard: bool,
    /// Without `hard`, how much it counts that there is no pod: 50 as much as a pod in the same zone.
    #[serde(default = "default_weight", deserialize_with = "units::weight")]
    #[schema(minimum = 1, maximum = 100)]
    pub weight: u32,
}

/// Pods go where no pods of another service are. With `hard` its new pods keep away from those of the
/// service, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AntiAffinity {
    /// Another service. Named as in `allow_from`.
    #[schema(example = "batch")]
    pub service: String,
    /// A label, or `node`. Nodes without the label are in no such place together.
    #[serde(default = "default_by")]
    #[schema(example = "zone")]
    pub by: String,
    /// A pod waits if there are pods of that service everywhere.
    #[serde(default = "default_hard")]
    pub hard: bool,
    /// With `hard: false`, how much each pod counts: 50 as much as a pod in the same zone.
    #[serde(default = "default_weight", deserialize_with = "units::weight")]
    #[schema(minimum = 1, maximum = 100)]
    pub weight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RelationKind {
    Near,
    Apart,
}

/// One of these rules, as placement takes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Relation {
    pub service: ServiceName,
    /// A label, or `node.hostname`.
    pub key: String,
    pub kind: RelationKind,
    pub hard: bool,
    pub weight: u32,
    /// `service` has the rule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_other: bool,
}

impl Relation {
    /// The same rule for the pods of the service that it names; `None` if it does not concern them.
    #[must_use]
    pub fn reversed(&self, owner: &ServiceName) -> Option<Self> {
        let concerns = self.hard && self.kind == RelationKind::Apart;
        concerns.then(|| Self { service: owner.clone(), is_of_other: true, ..self.clone() })
    }

    pub fn is_by_node(&self) -> bool {
        self.key == HOST_NAME
    }
}

fn default_by() -> String {
    NODE.to_owned()
}

fn default_hard() -> bool {
    true
}

fn key_of(by: &str) -> &str {
    if by == NODE { HOST_NAME } else { label_of(by) }
}

pub(super) fn relations<'a>(
    affinity: &'a [Affinity],
    anti_affinity: &'a [AntiAffinity],
) -> impl Iterator<Item = Relation> + 'a {
    let relation = |(service, by, kind, hard, weight): (&str, &str, RelationKind, bool, u32)| {
        let service = ServiceName::new(whole(service)).ok()?;
        Some(Relation { service, key: key_of(by).to_owned(), kind, hard, weight, is_of_other: false })
    };
    let near = affinity.iter().map(|Affinity { service, by, hard, weight }| {
        (service.as_str(), by.as_str(), RelationKind::Near, *hard, *weight)
    });
    let apart = anti_affinity.iter().map(|AntiAffinity { service, by, hard, weight }| {
        (service.as_str(), by.as_str(), RelationKind::Apart, *hard, *weight)
    });
    near.chain(apart).filter_map(relation)
}

pub(super) fn violations(
    own: &ServiceName,
    affinity: &[Affinity],
    anti_affinity: &[AntiAffinity],
) -> Vec<Violation> {
    let near = affinity.iter().map(|one| (one.service.as_str(), one.by.as_str(), one.weight));
    let apart = anti_affinity.iter().map(|one| (one.service.as_str(), one.by.as_str(), one.weight));
    let mut found = list_violations("/placement/affinity", &near.collect::<Vec<_>>());
    found.extend(list_violations("/placement/anti_affinity", &apart.collect::<Vec<_>>()));
    for (index, one) in anti_affinity.iter().enumerate() {
        let pointer = format!("/placement/anti_affinity/{index}");
        let is_both = |other: &Affinity| {
            other.hard && other.service == one.service && key_of(&other.by) == key_of(&one.by)
        };
        if whole(&one.service) == own.as_str() {
            let instead = "is the service itself: `max_per_node: 1` keeps its pods on different nodes, and a hard \
                           `spread` in different domains";
            found.push(Violation::new(format!("{pointer}/service"), instead));
        } else if one.hard && affinity.iter().any(is_both) {
            found.push(Violation::new(pointer, "contradicts the hard affinity to the same service"));
        }
    }
    found
}

fn list_violations(list: &str, all: &[(&str, &str, u32)]) -> Vec<Violation> {
    let mut found = Vec::new();
    if all.len() > MAX_RELATIONS {
        found.push(Violation::new(list, format!("a service has at most {MAX_RELATIONS} of them")));
    }
    for (index, (service, by, weight)) in all.iter().enumerate() {
        let pointer = format!("{list}/{index}");
        let invalid = ServiceName::new(whole(service)).err();
        found.extend(invalid.map(|error| Violation::new(format!("{pointer}/service"), error.to_string())));
        if *by != NODE {
            found.extend(label_violation(by, &format!("{pointer}/by")));
        }
        found.extend(weight_violation(*weight, &pointer));
        if all[..index].iter().any(|(other, other_by, _)| other == service && key_of(other_by) == key_of(by))
        {
            found.push(Violation::new(pointer, "is there twice"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;
    use crate::spec::{Placement, ServiceInput};

    fn told(json: serde_json::Value) -> Vec<String> {
        let placement: Placement = serde_json::from_value(json).unwrap();
        let found = placement.violations(&ServiceName::new("db").unwrap());
        found.iter().map(|one| format!("{}: {}", one.pointer, one.detail)).collect()
    }

    #[test]
    fn an_invalid_relation_is_told_with_its_place() {
        let many: Vec<_> = (0..17).map(|i| json!({"service": format!("s{i}")})).collect();
        for (rules, expected) in [
            (json!({"affinity": many}), "/placement/affinity: a service has at most 16 of them"),
            (json!({"anti_affinity": [{"service": "no name"}]}), "/placement/anti_affinity/0/service: "),
            (
                json!({"affinity": [{"service": "web", "by": "node.id"}]}),
                "/placement/affinity/0/by: is a label of the nodes",
            ),
            (
                json!({"affinity": [{"service": "web", "weight": 101}]}),
                "/placement/affinity/0/weight: is from 1 to 100",
            ),
            (
                json!({"affinity": [{"service": "web"}, {"service": "web", "by": "node.hostname"}]}),
                "/placement/affinity/1: is there twice",
            ),
            (
                json!({"anti_affinity": [{"service": "db"}]}),
                "/placement/anti_affinity/0/service: is the service itself: `max_per_node: 1`",
            ),
            (
                json!({"affinity": [{"service": "web", "hard": true}], "anti_affinity": [{"service": "web"}]}),
                "/placement/anti_affinity/0: contradicts",
            ),
        ] {
            let told = told(rules);
            assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?} {expected}");
        }
        let allowed = json!({
            "affinity": [{"service": "db", "by": "zone", "hard": true}, {"service": "web"}],
            "anti_affinity": [{"service": "web", "by": "zone"}],
        });
        assert!(told(allowed).is_empty());
        assert!(serde_json::from_value::<Affinity>(json!({"service": "web", "near": 1})).is_err());
    }

    #[test]
    fn only_a_hard_anti_affinity_concerns_the_other_service() {
        let placement: Placement = serde_json::from_value(json!({
            "affinity": [{"service": "a", "hard": true}, {"service": "b", "by": "zone"}],
            "anti_affinity": [{"service": "c", "hard": false}, {"service": "d", "by": "node.labels.rack"}],
        }))
        .unwrap();
        let own = ServiceName::new("own").unwrap();
        let all: Vec<Relation> = placement.relations().collect();
        let told = |one: &Relation| format!("{} {} {:?} {}", one.service, one.key, one.kind, one.hard);
        let told: Vec<String> = all.iter().map(told).collect();
        let expected = [
            "a node.hostname Near true",
            "b zone Near false",
            "c node.hostname Apart false",
            "d rack Apart true",
        ];
        assert_eq!(told, expected);
        let reversed: Vec<Relation> = all.iter().filter_map(|one| one.reversed(&own)).collect();
        assert_eq!(reversed.len(), 1);
        assert!(reversed[0].service == own && reversed[0].key == "rack" && reversed[0].is_of_other);
    }

    #[test]
    fn names_are_those_in_the_app_unless_they_are_whole_and_stay_what_they_are() {
        let input = |names: [&str; 2]| {
            let [near, far] = names;
            let rules = json!({"affinity": [{"service": near}], "anti_affinity": [{"service": far}]});
            json!({"name": "shop-db", "app": "shop", "image": "db", "placement": rules})
        };
        let normal = |names| {
            let desired = ServiceInput::from_value(&input(names)).unwrap().normalize().unwrap();
            let placement = desired.fields.placement.unwrap();
            let related: Vec<String> = placement.relations().map(|one| one.service.to_string()).collect();
            (placement, related)
        };
        let (placement, related) = normal(["cache", "batch.kubeleet"]);
        assert_eq!(related, ["shop-cache", "batch"]);
        let stored = [placement.affinity[0].service.as_str(), placement.anti_affinity[0].service.as_str()];
        assert_eq!(normal(stored), (placement.clone(), related));
    }
}
