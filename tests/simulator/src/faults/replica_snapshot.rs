//! The data of a replica that has fallen behind.

use crate::checks::observed_state::SimulatedState;
use crate::machine::process_id::WORKERS;

pub(crate) struct ReplicaSnapshot {
    /// Keys with their DUMP.
    pub(crate) content: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) observed: SimulatedState,
    pub(crate) last_heartbeats: [u64; WORKERS],
    pub(crate) taken_at: u64,
    pub(crate) service_in_doubt: Option<&'static str>,
}
