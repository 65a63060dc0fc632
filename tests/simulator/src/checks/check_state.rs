//! State and results of the checks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ::redis::Value;
use model::ids::VolumeName;

use crate::checks::known_jobs::KnownJobs;
use crate::checks::observed_state::SimulatedPod;
use crate::machine::process_id::SCHEDULERS;

#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<String>,
    pub(crate) unapplied_rows: Vec<Value>,
    pub(crate) partial_reads: u64,
    pub(crate) known_pods: BTreeSet<String>,
    pub(crate) data_hosts: BTreeMap<VolumeName, usize>,
    pub(crate) incarnations: HashSet<Vec<u8>>,
    pub(crate) fenced_write: Option<String>,
    /// The last script named an outdated assignment of them.
    pub(crate) protected_pods: HashMap<String, Option<SimulatedPod>>,
    pub(crate) replacement: Option<String>,
    pub(crate) has_assigned: bool,
    pub(crate) has_stopped: bool,
    /// By scheduler.
    pub(crate) refused_beats: [u64; SCHEDULERS],
    /// All live nodes had been silent for long enough for each scheduler to see it.
    pub(crate) mass_loss_at: u64,
    pub(crate) jobs: KnownJobs,
    /// Service and replica.
    pub(crate) ready_ordinals: BTreeSet<(String, u32)>,
    /// By service and node: the pods with their assignments that schedulers have put there, since nothing was
    /// lost.
    pub(crate) placed: BTreeMap<(String, String), BTreeSet<(String, String)>>,
}
