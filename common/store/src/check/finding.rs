//! A problem in Redis, and its repair.

use super::key_copy::PodCopy;
use crate::NodeUsage;
use model::node::Resources;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub key: String,
    pub problem: String,
    pub(crate) repair: Repair,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repair {
    /// By the script `repair`, unless the subject has changed since.
    Scripted(RepairCall),
    /// Unless something was reserved or released since.
    CorrectUsage { seen: NodeUsage, actual: Resources },
    /// The reconcile loop repairs it within a minute.
    Wait,
    /// An operator has to decide.
    Decide { what: &'static str },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepairCall {
    pub(crate) action: &'static str,
    pub(crate) element: Vec<u8>,
    /// This record must be as it was seen.
    pub(crate) record: String,
    pub(crate) seen_phase: Vec<u8>,
    pub(crate) seen_node: String,
    words: String,
}

const NO_RECORD: &str = "pod:";
const RENAMES: &str = "renames it";
const REMOVES_ENTRY: &str = "removes the entry";

fn scripted(
    action: &'static str,
    element: impl Into<Vec<u8>>,
    record: impl Into<String>,
    seen_phase: impl Into<Vec<u8>>,
    words: impl Into<String>,
) -> Repair {
    Repair::Scripted(RepairCall {
        action,
        element: element.into(),
        record: record.into(),
        seen_phase: seen_phase.into(),
        seen_node: String::new(),
        words: words.into(),
    })
}

impl Repair {
    /// The key must still have this type. It expires after a week.
    pub(super) fn move_aside(actual_type: &str) -> Self {
        scripted("move_aside", actual_type, NO_RECORD, "", RENAMES)
    }

    /// The record must still have this phase.
    pub(super) fn move_broken(seen_phase: Vec<u8>) -> Self {
        scripted("move_broken", "", NO_RECORD, seen_phase, RENAMES)
    }

    /// Fields are one a line; the record must still have this phase.
    pub(super) fn remove_fields(fields: &str, seen_phase: Vec<u8>) -> Self {
        let words = format!("removes {}", fields.replace('\n', ", "));
        scripted("remove_fields", fields, NO_RECORD, seen_phase, words)
    }

    pub(super) fn remove_slot(field: &[u8], seen: &[u8]) -> Self {
        scripted("remove_slot", field, NO_RECORD, seen, REMOVES_ENTRY)
    }

    pub(super) fn expire() -> Self {
        scripted("expire", "", NO_RECORD, "", "lets it expire in an hour")
    }

    /// The service must still name it, and the text be unchanged.
    pub(super) fn restore_spec(service: &str, spec: &str, seen: &[u8]) -> Self {
        let words = format!("writes it again from the record of service {service}");
        scripted("restore_spec", spec, format!("service:{service}"), seen, words)
    }

    pub(super) fn add(element: &str, record: String) -> Self {
        scripted("add", element, record, "", format!("adds {element}"))
    }

    pub(super) fn remove(element: impl Into<Vec<u8>>, record: String) -> Self {
        scripted("remove", element, record, "", REMOVES_ENTRY)
    }

    /// The record must still have this phase and node.
    pub(super) fn remove_of_pod(element: &[u8], id: &str, pod: PodCopy) -> Self {
        let mut repair = scripted("remove", element, format!("pod:{id}"), pod.phase, REMOVES_ENTRY);
        if let Self::Scripted(call) = &mut repair {
            call.seen_node = pod.node;
        }
        repair
    }

    /// Its service must have it, and no other.
    pub(super) fn add_route(route: &str, target: &str, service: &str) -> Self {
        scripted("add_route", route, format!("service:{service}"), target, format!("adds {route}"))
    }

    /// Its service must not have it.
    pub(super) fn remove_route(route: &[u8], target: &[u8], service: &str) -> Self {
        scripted("remove_route", route, format!("service:{service}"), target, REMOVES_ENTRY)
    }
}

/// Of relations between services.
impl Repair {
    /// Its owner must have it.
    pub(super) fn add_relation(name: &str, owner: &str) -> Self {
        scripted("add_relation", name, format!("service:{owner}"), owner, format!("adds {owner}"))
    }

    /// Its owner must not have it.
    pub(super) fn remove_relation(name: &[u8], owner: &[u8]) -> Self {
        let text = String::from_utf8_lossy(owner);
        scripted("remove_relation", name, format!("service:{text}"), owner, format!("removes {text:.100}"))
    }
}

impl Finding {
    #[cfg(test)]
    pub(super) fn in_words(&self) -> String {
        format!("{}; {}", self.problem, self.repair())
    }

    pub fn repair(&self) -> String {
        match &self.repair {
            Repair::Scripted(call) if call.words == RENAMES => {
                format!("{RENAMES} to broken:{}, which expires in a week", self.key)
            }
            Repair::Scripted(call) => call.words.clone(),
            Repair::CorrectUsage { .. } => "corrects the sums".to_owned(),
            Repair::Wait => "nothing: the reconcile loop repairs it within two minutes".to_owned(),
            Repair::Decide { what } => format!("nothing: {what}"),
        }
    }
}

pub(super) fn finding(key: impl Into<String>, problem: impl Into<String>, repair: Repair) -> Finding {
    Finding { key: key.into(), problem: problem.into(), repair }
}
