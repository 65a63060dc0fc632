//! Something that is wrong, and what repairs it.

use crate::NodeUsage;
use model::node::Resources;

/// Something that is wrong in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The key that is wrong.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What repairs it.
    pub(crate) repair: Repair,
}

/// What repairs a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Rename the key, if it still has this type. The copy expires after a week.
    MoveAside { actual_type: String },
    /// Rename a record, if it still has this phase.
    MoveBroken { seen_phase: Vec<u8> },
    /// Remove fields of a record, one in each line, if it still has this phase.
    RemoveFields { fields: String, seen_phase: Vec<u8> },
    /// Remove a field of the slots of a service, if it still has this value.
    RemoveSlot { field: Vec<u8>, seen: Vec<u8> },
    /// Add an element to a set, if its record exists.
    AddElement { element: String, record: String },
    /// Let it expire.
    Expire,
    /// Write the specification again from the record of this service, if the service still names it and it
    /// still has this text.
    RestoreSpec { service: String, spec: String, seen: Vec<u8> },
    /// Remove an element of the key, if the record of the pod or node still has this phase and node.
    RemoveElement { element: Vec<u8>, record: String, seen_phase: String, seen_node: String },
    /// Write a route again, if the service that it names has it and no other got it meanwhile.
    AddRoute { route: String, target: String },
    /// Remove a route, if it still has this value and the service that it names does not have it.
    RemoveRoute { route: Vec<u8>, target: Vec<u8> },
    /// Correct what a node says that its pods use, if nothing was reserved or released there since.
    CorrectUsage { seen: NodeUsage, actual: Resources },
    /// The reconcile loop repairs it within a minute.
    Wait,
    /// A person has to decide.
    Decide { what: &'static str },
}

impl Finding {
    /// Returns what `--repair` does about it, in a sentence.
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
