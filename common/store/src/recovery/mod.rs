//! Writes what of a saved state is missing in Redis: [`plan`] decides, and the operations ask the workers and
//! carry the plan out.
//!
//! Tests: beside the code, scripts::recovery, scenarios::recovery

mod backup;
mod operations;
mod plan;
pub mod saved_state;

pub use operations::RecoveryAnswer;
pub use plan::*;
