//! `placement`: rules for the nodes of a service's pods.
//!
//! Tests: beside the code, scripts::scheduling, scenarios::placement

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Violation;
use crate::ids::NodeName;
use crate::service::selector::LabelRequirement;

/// The form of a stored specification whose service has rules that must hold. Earlier schedulers know none:
/// they cannot read it, and place no pod of it.
pub const FORM_WITH_RULES: u32 = 4;
const MAX_CONSTRAINTS: usize = 32;
const MAX_TEXT: usize = 512;
/// As with Swarm.
const LABELS: &str = "node.labels.";
const HOST_NAME: &str = "node.hostname";

/// Rules for the nodes that run the pods. They hold when a pod is placed: a change of them moves no pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Placement {
    /// Requirements of a node's labels, which must all hold: `zone in (a,b)`, `disk == ssd`, `tier != test`,
    /// `gpu`, `!legacy`; and of its name, `node.hostname != w3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32, example = json!(["zone in (a,b)", "disk == ssd"]))]
    pub constraints: Vec<String>,
}

impl Placement {
    /// A node that ignores them does no harm.
    pub fn is_soft(&self) -> bool {
        self.constraints.is_empty()
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        if self.constraints.len() > MAX_CONSTRAINTS {
            let why = format!("a service has at most {MAX_CONSTRAINTS} constraints");
            found.push(Violation::new("/placement/constraints", why));
        }
        for (index, text) in self.constraints.iter().enumerate() {
            if let Err(InvalidConstraint(why)) = text.parse::<NodeConstraint>() {
                found.push(Violation::new(format!("/placement/constraints/{index}"), why));
            }
        }
        found
    }
}

/// One requirement of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeConstraint {
    text: String,
    rule: NodeRule,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum NodeRule {
    Label(LabelRequirement),
    HostName(LabelRequirement),
    /// It was stored by another program.
    Unreadable,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConstraint(String);

impl NodeConstraint {
    /// No node satisfies an unreadable one: a pod must not run where its service does not want it.
    pub fn from_stored(text: &str) -> Self {
        let unreadable = |_| Self { text: text.to_owned(), rule: NodeRule::Unreadable };
        text.parse().unwrap_or_else(unreadable)
    }

    pub fn holds(&self, node: &NodeName, labels: &BTreeMap<String, String>) -> bool {
        match &self.rule {
            NodeRule::Label(label) => label.holds(labels.get(label.key()).map(String::as_str)),
            NodeRule::HostName(name) => name.holds(Some(node.as_str())),
            NodeRule::Unreadable => false,
        }
    }

    /// The change of a label with which a node satisfies it: its value, or `None` to remove it. There is none
    /// for names.
    pub fn satisfied_by(&self) -> Option<(String, Option<String>)> {
        let NodeRule::Label(label) = &self.rule else { return None };
        Some((label.key().to_owned(), label.satisfied_by().map(str::to_owned)))
    }

    /// Why the node does not satisfy it.
    pub fn explain(&self, labels: &BTreeMap<String, String>) -> String {
        let text = &self.text;
        let NodeRule::Label(label) = &self.rule else {
            return match self.rule {
                NodeRule::Unreadable => format!("the service's constraint {text:?} is unreadable"),
                _ => format!("is not a node with {text}"),
            };
        };
        match labels.get(label.key()) {
            Some(value) => format!("has {}={value}, but the service needs {text}", label.key()),
            None => format!("has no label {}, but the service needs {text}", label.key()),
        }
    }
}

impl FromStr for NodeConstraint {
    type Err = InvalidConstraint;

    fn from_str(text: &str) -> Result<Self, InvalidConstraint> {
        let refuse = |why: String| Err(InvalidConstraint(why));
        if text.len() > MAX_TEXT {
            return refuse(format!("is longer than {MAX_TEXT} bytes"));
        }
        let Some(requirement) = LabelRequirement::parse(text) else {
            return refuse(format!(
                "{text:?} is not a constraint: write label == value, label != value, label in (a,b), label notin (a,b), \
                 label or !label"
            ));
        };
        let of = |rule| Ok(Self { text: text.trim().to_owned(), rule });
        match requirement.key() {
            HOST_NAME => of(NodeRule::HostName(requirement)),
            "node.role" => {
                refuse("node.role: all nodes of kubeleet are alike; leave it out, or label them".to_owned())
            }
            "node.id" => refuse("node.id: nodes have names; write node.hostname == NAME".to_owned()),
            key if key.starts_with(LABELS) => {
                let key = key[LABELS.len()..].to_owned();
                of(NodeRule::Label(requirement.with_key(key)))
            }
            key if key.starts_with("node.") || key.starts_with("engine.") => refuse(format!(
                "{key}: constraints know {HOST_NAME}, node.labels.KEY and KEY, a label of the node"
            )),
            _ => of(NodeRule::Label(requirement)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_constraint_is_a_requirement_of_a_label_or_of_the_name() {
        let node = NodeName::new("w3").unwrap();
        let labels = BTreeMap::from([("zone", "a"), ("disk", "ssd")].map(|(k, v)| (k.into(), v.into())));
        for (text, expected) in [
            ("zone == a", true),
            ("node.labels.zone==a", true),
            ("node.labels.zone != a", false),
            ("zone in (b,c)", false),
            ("disk", true),
            ("!legacy", true),
            ("node.hostname != w3", false),
            ("node.hostname in (w2, w3)", true),
            ("ZONE==a", false),
        ] {
            assert_eq!(text.parse::<NodeConstraint>().unwrap().holds(&node, &labels), expected, "{text}");
        }
    }

    #[test]
    fn a_node_is_told_what_it_lacks() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        for (text, expected) in [
            ("zone==b", "has zone=a, but the service needs zone==b"),
            ("disk == ssd", "has no label disk, but the service needs disk == ssd"),
            ("node.hostname == w1", "is not a node with node.hostname == w1"),
            ("zone of (a)", "the service's constraint \"zone of (a)\" is unreadable"),
        ] {
            assert_eq!(NodeConstraint::from_stored(text).explain(&labels), expected);
        }
    }

    #[test]
    fn an_invalid_constraint_is_told_with_its_place() {
        let constraints = ["disk", "zone of (a)", "node.role==worker", "node.id==x", "engine.labels.a==b"];
        let placement = Placement { constraints: constraints.map(str::to_owned).to_vec() };
        let told: Vec<String> =
            placement.violations().iter().map(|one| format!("{}: {}", one.pointer, one.detail)).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(
            told[0].starts_with("/placement/constraints/1: \"zone of (a)\" is not a constraint"),
            "{told:?}"
        );
        assert!(told[1].contains("are alike"), "{told:?}");
        let many = Placement { constraints: vec!["a".to_owned(); 33] };
        assert_eq!(many.violations().len(), 1);
        assert!("a".repeat(600).parse::<NodeConstraint>().is_err());
    }
}
