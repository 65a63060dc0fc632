//! Writes what of a saved state is missing in Redis: [`plan`] decides, and the operations ask the workers and
//! carry the plan out.

mod backup;
mod operations;
mod plan;
pub mod saved_state;

pub use operations::RecoveryAnswer;
pub use plan::*;
