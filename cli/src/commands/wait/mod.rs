//! `--wait`: polls until the goal is reached or unreachable, or the time is over.
//!
//! Events trigger an immediate poll. They are only hints, so it also polls regularly.

mod assess;
mod goal;
mod hints;
mod progress;
#[cfg(test)]
mod tests;
mod waiter;

pub(crate) use goal::Goal;
pub(crate) use waiter::Waiter;
