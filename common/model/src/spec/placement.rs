//! `placement`: rules for the nodes of a service's pods.
//!
//! Tests: beside the code, scripts::scheduling, scenarios::placement

mod checks;
mod node_constraint;
mod priority;
mod relation;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use self::checks::{default_weight, weight_violation};
pub(super) use self::checks::{label_of, label_violation};
use self::node_constraint::HOST_NAME;
pub use self::node_constraint::{InvalidConstraint, NodeConstraint};
pub use self::priority::{Preemption, Priority};
pub use self::relation::{Affinity, AntiAffinity, Relation, RelationKind};
use super::allow_from::in_app;
use super::{Violation, units};
use crate::ids::{AppName, NodeName, ServiceName};

/// The form of a stored specification whose service has rules that must hold, is stateful or global, or asks
/// for named resources. Earlier schedulers know none of these: they cannot read it, and place no pod of it.
pub const FORM_WITH_RULES: u32 = 4;
const MAX_CONSTRAINTS: usize = 32;
const MAX_PREFERENCES: usize = 16;
/// A scheduler keeps the nodes of each combination of values apart.
const MAX_SPREADS: usize = 3;
const MAX_COUNT: u64 = 100_000;

/// Rules for the nodes that run the pods. They hold when a pod is placed; of the constraints a pod whose node
/// no longer satisfies them leaves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Placement {
    /// Requirements of a node's labels, which must all hold: `zone in (a,b)`, `disk == ssd`, `tier != test`,
    /// `gpu`, `!legacy`; and of its name, `node.hostname != w3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32, example = json!(["zone in (a,b)", "disk == ssd"]))]
    pub constraints: Vec<String>,
    /// Requirements that a node should satisfy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub preferences: Vec<Preference>,
    /// Labels over whose values the pods are spread, beside the zones and nodes over which all are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 3)]
    pub spread: Vec<Spread>,
    /// How many pods of the service a node takes, old ones of an update included.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "units::optional_at_least_one"
    )]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 100000, example = 1)]
    pub max_per_node: Option<NonZeroU64>,
    /// Services near whose pods the pods run. They need not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub affinity: Vec<Affinity>,
    /// Services away from whose pods the pods run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub anti_affinity: Vec<AntiAffinity>,
}

/// A node without it counts as if it had more pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// As one of the `constraints`.
    #[schema(example = "disk == ssd")]
    pub when: String,
    /// Ten are worth one pod on a node of 100 slots.
    #[serde(default = "default_weight", deserialize_with = "units::weight")]
    #[schema(minimum = 1, maximum = 100)]
    pub weight: u32,
}

/// Pods of one generation, counted by the values that their nodes have for a label: its domains.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// A label, or `node.hostname`.
    #[schema(example = "zone")]
    pub by: String,
    /// With `hard`, how many more pods a domain may have than the one with the fewest.
    #[serde(default = "default_skew", deserialize_with = "units::at_least_one")]
    #[schema(value_type = u64, minimum = 1, maximum = 100000)]
    pub max_skew: NonZeroU64,
    /// No pod goes where it would exceed `max_skew`; it waits instead. Nodes without the label get none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard: bool,
    /// With `hard`, while there are fewer domains, a further one counts as if it had no pod.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "units::optional_at_least_one"
    )]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 100000)]
    pub min_domains: Option<NonZeroU64>,
    /// Without `hard`, how much a pod in the same domain counts: 50 as much as one in the same zone.
    #[serde(default = "default_weight", deserialize_with = "units::weight")]
    #[schema(minimum = 1, maximum = 100)]
    pub weight: u32,
}

fn default_skew() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl Placement {
    /// A node that ignores them does no harm.
    pub fn is_soft(&self) -> bool {
        self.constraints.is_empty() && !self.counts_strictly()
    }

    pub fn counts_pods(&self) -> bool {
        self.max_per_node.is_some() || !self.spread.is_empty()
    }

    /// Whether a pod may have to wait because of where others of the service are.
    pub fn counts_strictly(&self) -> bool {
        self.max_per_node.is_some()
            || self.spread.iter().any(|spread| spread.hard)
            || self.relations().any(|relation| relation.hard)
    }

    pub fn relations(&self) -> impl Iterator<Item = Relation> {
        relation::relations(&self.affinity, &self.anti_affinity)
    }

    /// Expands the names of services.
    pub(super) fn of_app(mut self, app: Option<&AppName>) -> Self {
        let near = self.affinity.iter_mut().map(|one| &mut one.service);
        let all = near.chain(self.anti_affinity.iter_mut().map(|one| &mut one.service));
        all.for_each(|name| *name = in_app(app, std::mem::take(name)));
        self
    }

    /// `own` is the service.
    pub(super) fn violations(&self, own: &ServiceName) -> Vec<Violation> {
        let Self { constraints, preferences, spread, max_per_node, affinity, anti_affinity } = self;
        let mut found: Vec<Violation> = max_per_node
            .and_then(|most| count_violation(most, "/placement/max_per_node"))
            .into_iter()
            .collect();
        let mut limit = |count: usize, max: usize, what: &str| {
            if count > max {
                let why = format!("a service has at most {max} of them");
                found.push(Violation::new(format!("/placement/{what}"), why));
            }
        };
        limit(constraints.len(), MAX_CONSTRAINTS, "constraints");
        limit(preferences.len(), MAX_PREFERENCES, "preferences");
        limit(spread.len(), MAX_SPREADS, "spread");
        for (index, text) in constraints.iter().enumerate() {
            found.extend(constraint_violation(text, format!("/placement/constraints/{index}")));
        }
        for (index, Preference { when, weight }) in preferences.iter().enumerate() {
            let pointer = format!("/placement/preferences/{index}");
            found.extend(constraint_violation(when, format!("{pointer}/when")));
            found.extend(weight_violation(*weight, &pointer));
        }
        for (index, one) in spread.iter().enumerate() {
            let pointer = format!("/placement/spread/{index}");
            found.extend(one.violations(&pointer));
            if spread[..index].iter().any(|other| other.key() == one.key()) {
                found.push(Violation::new(format!("{pointer}/by"), "is there twice"));
            }
        }
        found.extend(relation::violations(own, affinity, anti_affinity));
        found
    }
}

impl Spread {
    /// The label, or `node.hostname`.
    pub fn key(&self) -> &str {
        label_of(&self.by)
    }

    /// That of a node; `None` if it has no such label.
    pub fn domain<'a>(&self, node: &'a NodeName, labels: &'a BTreeMap<String, String>) -> Option<&'a str> {
        domain_of(self.key(), node, labels)
    }

    fn violations(&self, pointer: &str) -> Vec<Violation> {
        let mut found: Vec<Violation> =
            label_violation(&self.by, &format!("{pointer}/by")).into_iter().collect();
        if self.min_domains.is_some() && !self.hard {
            found.push(Violation::new(format!("{pointer}/min_domains"), "needs `hard: true`"));
        }
        found.extend(count_violation(self.max_skew, &format!("{pointer}/max_skew")));
        let domains =
            self.min_domains.and_then(|least| count_violation(least, &format!("{pointer}/min_domains")));
        found.extend(domains);
        found.extend(weight_violation(self.weight, pointer));
        found
    }
}

/// Of a label, or `node.hostname`; `None` if the node has no such label.
pub fn domain_of<'a>(key: &str, node: &'a NodeName, labels: &'a BTreeMap<String, String>) -> Option<&'a str> {
    match key {
        HOST_NAME => Some(node.as_str()),
        key => labels.get(key).map(String::as_str),
    }
}

pub(super) fn count_violation(count: NonZeroU64, pointer: &str) -> Option<Violation> {
    (count.get() > MAX_COUNT).then(|| Violation::new(pointer, format!("is at most {MAX_COUNT}")))
}

fn constraint_violation(text: &str, pointer: String) -> Option<Violation> {
    let InvalidConstraint(why) = text.parse::<NodeConstraint>().err()?;
    Some(Violation::new(pointer, why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn told(json: serde_json::Value) -> Vec<String> {
        let placement: Placement = serde_json::from_value(json).unwrap();
        let found = placement.violations(&ServiceName::new("web").unwrap());
        found.iter().map(|one| format!("{}: {}", one.pointer, one.detail)).collect()
    }

    #[test]
    fn an_invalid_constraint_is_told_with_its_place() {
        let constraints = ["disk", "zone of (a)", "node.role==worker", "node.id==x", "engine.labels.a==b"];
        let told = told(json!({"constraints": constraints}));
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(
            told[0].starts_with("/placement/constraints/1: \"zone of (a)\" is not a constraint"),
            "{told:?}"
        );
        assert!(told[1].contains("are alike"), "{told:?}");
        assert!("a".repeat(600).parse::<NodeConstraint>().is_err());
    }

    #[test]
    fn an_invalid_rule_is_told_with_its_place() {
        for (rules, expected) in [
            (
                json!({"constraints": vec!["a"; 33]}),
                "/placement/constraints: a service has at most 32 of them",
            ),
            (
                json!({"preferences": [{"when": "disk", "weight": 0}]}),
                "/placement/preferences/0/weight: is from 1 to 100",
            ),
            (
                json!({"preferences": [{"when": "a b"}]}),
                "/placement/preferences/0/when: \"a b\" is not a constraint",
            ),
            (
                json!({"spread": [{"by": "zone", "weight": 101}]}),
                "/placement/spread/0/weight: is from 1 to 100",
            ),
            (json!({"max_per_node": 100_001}), "/placement/max_per_node: is at most 100000"),
            (
                json!({"spread": [{"by": "zone", "max_skew": 1e6}]}),
                "/placement/spread/0/max_skew: is at most",
            ),
            (json!({"spread": [{"by": ""}]}), "/placement/spread/0/by: is a label of the nodes"),
            (json!({"spread": [{"by": "node.id"}]}), "/placement/spread/0/by: is a label of the nodes"),
            (
                json!({"spread": [{"by": "zone"}, {"by": "node.labels.zone"}]}),
                "/placement/spread/1/by: is there twice",
            ),
            (json!({"spread": [{"by": "zone", "min_domains": 3}]}), "/placement/spread/0/min_domains: needs"),
        ] {
            let told = told(rules);
            assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?} {expected}");
        }
        for wrong in [json!({"max_per_node": 0}), json!({"spread": [{"by": "zone", "max_skew": 0}]})] {
            assert!(serde_json::from_value::<Placement>(wrong).is_err());
        }
        assert!(
            told(json!({"spread": [{"by": "node.hostname", "hard": true, "min_domains": 2}]})).is_empty()
        );
    }

    #[test]
    fn only_rules_that_must_hold_are_hard() {
        for (rules, is_soft, counts_strictly) in [
            (json!({}), true, false),
            (json!({"preferences": [{"when": "disk"}], "spread": [{"by": "rack"}]}), true, false),
            (json!({"constraints": ["disk"]}), false, false),
            (json!({"max_per_node": 1}), false, true),
            (json!({"spread": [{"by": "rack", "hard": true}]}), false, true),
            (json!({"affinity": [{"service": "cache"}]}), true, false),
            (json!({"affinity": [{"service": "cache", "hard": true}]}), false, true),
            (json!({"anti_affinity": [{"service": "db"}]}), false, true),
            (json!({"anti_affinity": [{"service": "db", "hard": false}]}), true, false),
        ] {
            let placement: Placement = serde_json::from_value(rules).unwrap();
            assert_eq!(
                (placement.is_soft(), placement.counts_strictly()),
                (is_soft, counts_strictly),
                "{placement:?}"
            );
        }
    }
}
