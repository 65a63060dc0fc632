//! Writes again what Redis has lost, from what workers have saved or from a backup: [`plan`] decides,
//! [`operations`] asks the workers and carries it out, [`backup`] reads what `kubeleet backup` writes.
//!
//! Tests: beside the code, scripts::recovery, scenarios::recovery

mod backup;
mod operations;
mod plan;
pub mod saved_state;

pub use operations::RecoveryAnswer;
pub use plan::*;
