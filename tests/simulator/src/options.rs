//! What one run does.

use std::path::Path;

use crate::machine::scripts::LoadedScripts;
use crate::scenario::Scenario;

/// Safeguards outside of the Lua scripts that an ablation disables. The default disables none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// A starting worker does not see the containers that ran under an expired lease.
    pub no_startup_fence: bool,
    /// Leases last longer than the silence after which a node is declared dead.
    pub fence_longer_than_dead: bool,
    /// Workers are told at once that nothing is in flight to a pod.
    pub no_wait_for_gates: bool,
    /// Gates let requests in that are closed.
    pub open_gates: bool,
    /// Workers do not find the payloads in `rq` that no task works on.
    pub no_sweep: bool,
}

/// What one run does.
#[derive(Debug)]
pub struct ScheduleOptions<'a> {
    /// Unix socket of a Redis of its own; its data is deleted.
    pub redis: &'a Path,
    /// Decides everything that is random.
    pub seed: u64,
    /// When faults occur.
    pub scenario: Scenario,
    /// Disabled safeguards outside of the scripts.
    pub switches: Switches,
    /// What that Redis has, perhaps with a safeguard disabled.
    pub scripts: &'a LoadedScripts,
    /// Whether to record every step.
    pub is_traced: bool,
}
