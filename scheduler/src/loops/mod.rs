//! The control loops: each restores one invariant, and none depends on another.
//!
//! Tests: tests, scenarios::deaths, scenarios::mistakes

pub(crate) mod abandoned_volumes;
pub(crate) mod balance;
pub(crate) mod confirm;
pub(crate) mod cron;
pub(crate) mod declare_dead;
pub(crate) mod drain;
pub(crate) mod external_workers;
pub(crate) mod free_addresses;
pub(crate) mod moves;
pub(crate) mod obsolete_dead_letters;
pub(crate) mod place;
pub(crate) mod reclaim;
pub(crate) mod reconcile;
pub(crate) mod unschedulable;
pub(crate) mod value_rollout;
