//! A problem in Redis, and its repair.

use crate::NodeUsage;
use model::node::Resources;

/// A problem in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The affected key.
    pub key: String,
    /// The problem, in a sentence.
    pub problem: String,
    pub(crate) repair: Repair,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Renames the key, if it still has this type. The copy expires after a week.
    MoveAside {
        actual_type: String,
    },
    /// Renames a record, if it still has this phase.
    MoveBroken {
        seen_phase: Vec<u8>,
    },
    /// Removes fields of a record, one per line, if it still has this phase.
    RemoveFields {
        fields: String,
        seen_phase: Vec<u8>,
    },
    /// Removes a slot of a service, if it still has this value.
    RemoveSlot {
        field: Vec<u8>,
        seen: Vec<u8>,
    },
    /// Adds an element to a set, if its record exists.
    AddElement {
        element: String,
        record: String,
    },
    Expire,
    /// Restores the specification from the record of its service, if the service still names it and its text
    /// is unchanged.
    RestoreSpec {
        service: String,
        spec: String,
        seen: Vec<u8>,
    },
    /// Removes an element, if the record of the pod or node still has this phase and node.
    RemoveElement {
        element: Vec<u8>,
        record: String,
        seen_phase: String,
        seen_node: String,
    },
    /// Restores a route, if its service has it and no other service took it meanwhile.
    AddRoute {
        route: String,
        target: String,
    },
    /// Removes a route, if it still has this value and its service does not have it.
    RemoveRoute {
        route: Vec<u8>,
        target: Vec<u8>,
    },
    /// Corrects the usage of a node, if nothing was reserved or released there since.
    CorrectUsage {
        seen: NodeUsage,
        actual: Resources,
    },
    /// The reconcile loop repairs it within a minute.
    Wait,
    /// An operator has to decide.
    Decide {
        what: &'static str,
    },
}

impl Finding {
    /// Returns what `--repair` does, in a sentence.
    pub fn repair(&self) -> String {
        match &self.repair {
            Repair::RemoveFields { fields, .. } => format!("removes {}", fields.replace('\n', ", ")),
            Repair::RemoveSlot { .. } | Repair::RemoveRoute { .. } => "removes the entry".to_owned(),
            Repair::AddElement { element, .. } | Repair::AddRoute { route: element, .. } => {
                format!("adds {element}")
            }
            Repair::MoveAside { .. } | Repair::MoveBroken { .. } => {
                format!("renames it to broken:{}, which expires in a week", self.key)
            }
            Repair::RestoreSpec { service, .. } => {
                format!("writes it again from the record of service {service}")
            }
            Repair::Expire => "lets it expire in an hour".to_owned(),
            Repair::RemoveElement { .. } => "removes the entry".to_owned(),
            Repair::CorrectUsage { .. } => "corrects the sums".to_owned(),
            Repair::Wait => "nothing: the reconcile loop repairs it within two minutes".to_owned(),
            Repair::Decide { what } => format!("nothing: {what}"),
        }
    }
}

pub(super) fn finding(key: impl Into<String>, problem: impl Into<String>, repair: Repair) -> Finding {
    Finding { key: key.into(), problem: problem.into(), repair }
}
