//! A copy of the keys, as the check compares them.

use std::collections::{BTreeMap, BTreeSet};

use crate::NodeUsage;
use crate::reply::RawFields;
use model::node::{HeldPod, Resources};
use model::pod::lifecycle::Phase;

/// A copy of what the check looks at. Keys are read one after the other, so that something that changes
/// meanwhile may look wrong: every repair checks again.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyCopy {
    /// The type of each key that does not have the type of its family.
    pub(crate) wrong_types: Vec<(String, &'static str, String)>,
    /// What is wrong with records of nodes and services that are unreadable, and their fields.
    pub(crate) broken_nodes: BTreeMap<String, (String, RawFields)>,
    pub(crate) broken_services: BTreeMap<String, (String, RawFields)>,
    /// The entries of `slots:<service>` that are none: service, field and value.
    pub(crate) broken_slots: Vec<(String, Vec<u8>, Vec<u8>)>,
    /// The members of `services`, and the records: service to its current specification.
    pub(crate) services: BTreeSet<String>,
    pub(crate) service_specs: BTreeMap<String, String>,
    /// What follows from the ingress of each service, and the fields of `routes`.
    pub(crate) service_routes: BTreeMap<String, String>,
    pub(crate) routes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Active services whose current specification does not exist, expires or is unreadable: service to
    /// specification, and the text that it has.
    pub(crate) missing_specs: BTreeMap<String, (String, Vec<u8>)>,
    /// The records of pods.
    pub(crate) pods: BTreeMap<String, PodCopy>,
    /// The records of pods of a wrong type: what is known about them is nothing.
    pub(crate) unreadable_pods: BTreeSet<String>,
    /// `slots:<service>`: slot to pod.
    pub(crate) slots: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) pushed: BTreeSet<String>,
    pub(crate) former_specs: BTreeSet<String>,
    /// The specifications that do not expire.
    pub(crate) lasting_specs: BTreeSet<String>,
    /// The members of `nodes`, and the records.
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) node_records: BTreeSet<String>,
    /// The pods without a record whose containers each node leaves alone.
    pub(crate) held_pods: BTreeMap<String, Vec<HeldPod>>,
    /// The nodes that were not declared dead.
    pub(crate) live_nodes: BTreeSet<String>,
    /// The payloads in each container set, and in each list, with the pod that each names.
    pub(crate) container_sets: BTreeMap<String, Vec<(Vec<u8>, String)>>,
    pub(crate) lists: BTreeMap<String, Vec<(Vec<u8>, String)>>,
    /// What each live node says that its pods use, if it said the same before and after the pods were read.
    pub(crate) usage: Vec<NodeUsage>,
    /// The records of volumes, the members of `volumes`, and those of `rv:<node>`.
    pub(crate) volumes: BTreeMap<String, VolumeCopy>,
    pub(crate) volume_names: BTreeSet<String>,
    /// The volumes of which nodes have copies that no record names.
    pub(crate) former_volumes: BTreeSet<String>,
    pub(crate) removals: BTreeMap<String, BTreeSet<String>>,
    /// The members of `stop:<node>`.
    pub(crate) stops: BTreeMap<String, Vec<Vec<u8>>>,
}

/// What the check reads of a pod's record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodCopy {
    pub(crate) phase: String,
    /// The phase as it is stored, which may be no text.
    pub(crate) raw_phase: Vec<u8>,
    pub(crate) node: String,
    pub(crate) assignment: String,
    pub(crate) service: String,
    pub(crate) spec: String,
    pub(crate) replica: String,
    /// What it reserves; nothing if the record is unreadable.
    pub(crate) request: Resources,
    /// Why the record is unreadable, if it is.
    pub(crate) unreadable: Option<String>,
    /// The fields that must be numbers and are none, one in each line.
    pub(crate) no_numbers: String,
}

impl PodCopy {
    pub(crate) fn new(fields: &RawFields) -> Self {
        let raw_phase = raw(fields, "phase");
        let text = |field: &str| text(fields, field);
        let (phase, node, service) = (text("phase"), text("node"), text("service"));
        let (spec, replica, assignment) = (text("spec"), text("replica"), text("assignment"));
        Self {
            phase,
            raw_phase,
            node,
            assignment,
            service,
            spec,
            replica,
            request: Resources::default(),
            unreadable: None,
            no_numbers: no_numbers(fields, &POD_NUMBERS),
        }
    }
}

/// The numbers of a pod's record that it can be without. Without its replica it is in no slot.
const POD_NUMBERS: [&str; 9] =
    ["attempts", "restarts", "generation", "cpu", "memory", "pids", "disk", "created_at", "since"];

/// What the check reads of a volume's record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VolumeCopy {
    /// The node that has its data.
    pub(crate) node: String,
    /// Whether it is in the directory that nodes share, and needs no node.
    pub(crate) is_shared: bool,
    /// The nodes whose copies contradict each other, as a text; empty without a conflict.
    pub(crate) conflict: String,
    /// Whether its node does not have the data any more.
    pub(crate) is_lost: bool,
    /// Why the record is unreadable, if it is.
    pub(crate) unreadable: Option<String>,
}

/// Returns a field as text; empty if there is none.
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

/// Returns those of these fields that are there and no numbers, one in each line.
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

/// Returns whether the pod is on a node, and reserves there what it needs.
pub(super) fn is_placed(pod: &PodCopy) -> bool {
    matches!(Phase::parse(&pod.phase), Some(Phase::Assigned | Phase::Running | Phase::Stopping))
}
