//! What the checks compare, and what they have found.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ::redis::Value;
use model::ids::VolumeName;

use crate::checks::known_jobs::KnownJobs;
use crate::checks::observed_state::SimulatedPod;
use crate::machine::process_id::SCHEDULERS;

/// What the next check compares, and what the checks have found.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<String>,
    /// What was read from Redis and is not yet part of the observed state.
    pub(crate) unapplied_rows: Vec<Value>,
    /// How many times only some keys were read since all were.
    pub(crate) partial_reads: u64,
    /// Every pod that ever existed.
    pub(crate) known_pods: BTreeSet<String>,
    /// The host that has the data of a replica: a pod with the volume ran there.
    pub(crate) data_hosts: BTreeMap<VolumeName, usize>,
    /// Every incarnation that a worker ever registered with.
    pub(crate) incarnations: HashSet<Vec<u8>>,
    /// The violation if the last script changed anything: its caller is fenced.
    pub(crate) fenced_write: Option<String>,
    /// Pods that the last script must not change, because it named an outdated assignment.
    pub(crate) protected_pods: HashMap<String, Option<SimulatedPod>>,
    /// The violation if the last script registered a worker: its node's worker is alive.
    pub(crate) replacement: Option<String>,
    /// Whether the last script was one that assigns pods to nodes.
    pub(crate) has_assigned: bool,
    /// Whether the last script was one that stops pods.
    pub(crate) has_stopped: bool,
    /// When Redis last refused the write with which a scheduler shows that it can write, by scheduler.
    pub(crate) refused_beats: [u64; SCHEDULERS],
    /// When all nodes that were alive had been silent for so long that each scheduler has seen it.
    pub(crate) mass_loss_at: u64,
    /// The jobs of a cron.
    pub(crate) jobs: KnownJobs,
}
