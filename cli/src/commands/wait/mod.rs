//! `--wait`: polls until the goal is reached or unreachable, or the time is over.
//!
//! An event triggers an immediate poll. Events are only hints, so it also polls regularly.

mod assess;
mod goal;
mod hints;
mod progress;
#[cfg(test)]
mod tests;
mod waiter;

pub(crate) use goal::Goal;
pub(crate) use waiter::Waiter;
