//! `--wait`: polls until the goal is reached, cannot be reached any more, or the time is over.
//!
//! Events make it look again at once. They are only hints, so it also polls.

mod assess;
mod goal;
mod hints;
mod progress;
#[cfg(test)]
mod tests;
mod waiter;

pub(crate) use goal::Goal;
pub(crate) use waiter::Waiter;
