//! The options of a run.

use std::path::Path;

use crate::machine::scripts::LoadedScripts;
use crate::scenario::Scenario;

/// Safeguards outside of the Lua scripts that an ablation disables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// A starting worker overlooks containers that ran under an expired lease.
    pub no_startup_fence: bool,
    pub fence_longer_than_dead: bool,
    pub no_wait_for_gates: bool,
    pub open_gates: bool,
    /// Workers do not find the payloads in `rq` that no task works on.
    pub no_sweep: bool,
    /// Engines do not tell which ids of named resources a container has.
    pub hidden_ids: bool,
    /// Users ask for it, and the checks do not know.
    pub start_at_once: bool,
    /// Schedulers place the pods of global services on other nodes.
    pub global_anywhere: bool,
}

#[derive(Debug)]
pub struct ScheduleOptions<'a> {
    /// Unix socket; its data is deleted.
    pub redis: &'a Path,
    pub seed: u64,
    pub scenario: Scenario,
    pub switches: Switches,
    pub scripts: &'a LoadedScripts,
    pub is_traced: bool,
}
