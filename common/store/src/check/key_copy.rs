//! The copy of all keys that the check compares.

use std::collections::{BTreeMap, BTreeSet};

use crate::NodeUsage;
use crate::reply::RawFields;
use model::node::{HeldPod, Resources};
use model::pod::lifecycle::Phase;

/// Keys are read one by one, so concurrent changes may look wrong: every repair checks again.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyCopy {
    /// With expected and actual type.
    pub(crate) wrong_types: Vec<(String, &'static str, String)>,
    /// With problem and fields.
    pub(crate) broken_nodes: BTreeMap<String, (String, RawFields)>,
    pub(crate) broken_services: BTreeMap<String, (String, RawFields)>,
    /// Service, field and value.
    pub(crate) broken_slots: Vec<(String, Vec<u8>, Vec<u8>)>,
    /// Members of the set; records with their specification.
    pub(crate) services: BTreeSet<String>,
    pub(crate) service_specs: BTreeMap<String, String>,
    /// Routes as the services expect them, and as they are.
    pub(crate) service_routes: BTreeMap<String, String>,
    pub(crate) routes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The names that the rules of each service name; by name, the services that name it.
    pub(crate) service_relations: BTreeMap<String, String>,
    pub(crate) relations: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Missing, expiring or unreadable specifications of active services: id and text.
    pub(crate) missing_specs: BTreeMap<String, (String, Vec<u8>)>,
    pub(crate) pods: BTreeMap<String, PodCopy>,
    /// Their records have a wrong type.
    pub(crate) unreadable_pods: BTreeSet<String>,
    pub(crate) slots: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) pushed: BTreeSet<String>,
    pub(crate) former_specs: BTreeSet<String>,
    pub(crate) lasting_specs: BTreeSet<String>,
    /// Members of the set; records.
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) node_records: BTreeSet<String>,
    pub(crate) held_pods: BTreeMap<String, Vec<HeldPod>>,
    pub(crate) live_nodes: BTreeSet<String>,
    /// With the pod of each payload.
    pub(crate) container_sets: BTreeMap<String, Vec<(Vec<u8>, String)>>,
    pub(crate) lists: BTreeMap<String, Vec<(Vec<u8>, String)>>,
    /// Only if it was equal before and after the pods were read.
    pub(crate) usage: Vec<NodeUsage>,
    /// Records, members of the set, and of `rv:<node>`.
    pub(crate) volumes: BTreeMap<String, VolumeCopy>,
    pub(crate) volume_names: BTreeSet<String>,
    pub(crate) former_volumes: BTreeSet<String>,
    pub(crate) removals: BTreeMap<String, BTreeSet<String>>,
    pub(crate) stops: BTreeMap<String, Vec<Vec<u8>>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodCopy {
    pub(crate) phase: String,
    /// Possibly not UTF-8.
    pub(crate) raw_phase: Vec<u8>,
    pub(crate) node: String,
    pub(crate) assignment: String,
    pub(crate) service: String,
    pub(crate) spec: String,
    pub(crate) replica: String,
    /// Nothing if the record is unreadable.
    pub(crate) request: Resources,
    pub(crate) unreadable: Option<String>,
    pub(crate) no_numbers: String,
}

impl PodCopy {
    pub(crate) fn new(fields: &RawFields) -> Self {
        let text = |field: &str| text(fields, field);
        Self {
            phase: text("phase"),
            raw_phase: raw(fields, "phase"),
            node: text("node"),
            assignment: text("assignment"),
            service: text("service"),
            spec: text("spec"),
            replica: text("replica"),
            no_numbers: no_numbers(fields, &POD_NUMBERS),
            ..Self::default()
        }
    }
}

/// Optional numbers. Without its replica a pod is in no slot.
const POD_NUMBERS: [&str; 9] =
    ["attempts", "restarts", "generation", "cpu", "memory", "pids", "disk", "created_at", "since"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VolumeCopy {
    pub(crate) node: String,
    pub(crate) is_shared: bool,
    pub(crate) conflict: String,
    pub(crate) is_lost: bool,
    pub(crate) unreadable: Option<String>,
}

pub(crate) fn text(fields: &RawFields, field: &str) -> String {
    String::from_utf8_lossy(&raw(fields, field)).into_owned()
}

pub(super) fn raw(fields: &RawFields, field: &str) -> Vec<u8> {
    fields
        .iter()
        .find(|(name, _)| name == field.as_bytes())
        .map(|(_, value)| value.clone())
        .unwrap_or_default()
}

pub(super) fn no_numbers(fields: &RawFields, names: &[&str]) -> String {
    let is_wrong = |name: &&&str| {
        let text = text(fields, name);
        let is_number = match **name {
            "attempts" | "restarts" => text.parse::<u32>().is_ok(),
            _ => text.parse::<u64>().is_ok(),
        };
        !text.is_empty() && !is_number
    };
    names.iter().filter(is_wrong).copied().collect::<Vec<_>>().join("\n")
}

pub(super) fn is_placed(pod: &PodCopy) -> bool {
    matches!(Phase::parse(&pod.phase), Some(Phase::Assigned | Phase::Running | Phase::Stopping))
}
