//! The nodes of a global service, each with the number of its pod: of its slot, its name and its volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::NodeName;

/// A node keeps its number until it is removed, also while it gets no pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeName,
    #[serde(default, skip_serializing_if = "Standing::is_open")]
    pub standing: Standing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Has a pod, or gets one.
    #[default]
    Open,
    /// Keeps the pod that it has: it is cordoned.
    Closed,
    /// Has no pod: it is dead, or does not satisfy the constraints, or has none to keep.
    Out,
}

impl Standing {
    fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

/// Of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// As stored: names this state. Empty if no scheduler has looked at the nodes yet.
    text: String,
    by_number: BTreeMap<u32, Member>,
}

impl Members {
    pub fn of(by_number: BTreeMap<u32, Member>) -> Self {
        let text = serde_json::to_string(&by_number).expect("numbers and names serialize");
        Self { text, by_number }
    }

    /// Unreadable ones are none.
    pub fn from_stored(text: String) -> Self {
        let by_number = serde_json::from_str(&text).unwrap_or_default();
        Self { text, by_number }
    }

    pub fn as_stored(&self) -> &str {
        &self.text
    }

    pub fn are_known(&self) -> bool {
        !self.text.is_empty()
    }

    pub fn by_number(&self) -> &BTreeMap<u32, Member> {
        &self.by_number
    }

    /// Numbers and nodes that have a pod, or get one.
    pub fn wanted(&self) -> impl DoubleEndedIterator<Item = (u32, &NodeName)> {
        let wanted = self.by_number.iter().filter(|(_, member)| member.standing != Standing::Out);
        wanted.map(|(number, member)| (*number, &member.node))
    }

    /// `None` if no pod of this number is wanted.
    pub fn wanted_on(&self, number: u32) -> Option<&NodeName> {
        self.by_number
            .get(&number)
            .filter(|member| member.standing != Standing::Out)
            .map(|member| &member.node)
    }

    /// A new pod would find no place.
    pub fn is_closed(&self, number: u32) -> bool {
        self.by_number.get(&number).is_some_and(|member| member.standing == Standing::Closed)
    }

    /// One more than the highest number.
    pub fn slots(&self) -> u32 {
        self.by_number.last_key_value().map_or(0, |(number, _)| number + 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn members_are_read_as_they_were_stored_and_nonsense_is_none() {
        let member = |node: &str, standing| Member { node: NodeName::new(node).unwrap(), standing };
        let by_number = BTreeMap::from([
            (0, member("w1", Standing::Open)),
            (1, member("w2", Standing::Closed)),
            (4, member("w3", Standing::Out)),
        ]);
        let members = Members::of(by_number);
        assert_eq!(
            members.as_stored(),
            r#"{"0":{"node":"w1"},"1":{"node":"w2","standing":"closed"},"4":{"node":"w3","standing":"out"}}"#
        );
        assert_eq!(Members::from_stored(members.as_stored().to_owned()), members);
        assert_eq!(members.wanted().map(|(number, _)| number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((members.wanted_on(1).map(NodeName::as_str), members.wanted_on(4)), (Some("w2"), None));
        assert_eq!((members.is_closed(0), members.is_closed(1), members.slots()), (false, true, 5));
        assert!(Members::of(BTreeMap::new()).are_known() && !Members::default().are_known());
        for text in ["x", "[]", r#"{"x":1}"#, r#"{"0":{"node":"w1","standing":"sideways"}}"#] {
            let members = Members::from_stored(text.to_owned());
            assert!(members.by_number().is_empty() && members.as_stored() == text, "{text}");
        }
    }
}
