//! One requirement of a node: of a label, or of its name.
//!
//! Tests: beside the code

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::ids::NodeName;
use crate::service::selector::LabelRequirement;

const MAX_TEXT: usize = 512;
/// As with Swarm.
pub(super) const LABELS: &str = "node.labels.";
pub(super) const HOST_NAME: &str = "node.hostname";

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
pub struct InvalidConstraint(pub(super) String);

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

impl fmt::Display for NodeConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
}
