//! The world of a run: `one_step` chooses what happens next, `execution` and `commands` let a waiting request
//! happen, and `observe` has the result checked.

pub(crate) mod commands;
pub(crate) mod execution;
pub(crate) mod observe;
pub(crate) mod one_step;
pub(crate) mod processes;
pub(crate) mod proxy_steps;
pub(crate) mod state;
