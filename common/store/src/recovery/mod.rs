//! Restores objects of a saved state that Redis lacks: [`plan`] decides, and the operations query the workers
//! and execute the plan.
//!
//! Tests: beside the code, scripts::recovery, scenarios::recovery

mod backup;
mod operations;
mod plan;
pub mod saved_state;

pub use operations::RecoveryAnswer;
pub use plan::*;
