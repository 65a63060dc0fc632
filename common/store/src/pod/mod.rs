//! Pods, from their queue to their end, and requests about them.
//!
//! `scheduling` and `unschedulable` are for schedulers, `claims` and `pod_reports` for workers, `reconciling`
//! for the reconcile loop, the rest for people and other programs.
//!
//! Tests: scripts::payloads, scripts::scheduling, scripts::lifecycle, scripts::phases, scripts::session,
//! scripts::dead_letters, scripts::every_operation

pub(crate) mod claims;
pub(crate) mod dead_letters;
pub(crate) mod decisions;
pub(crate) mod external_workers;
pub(crate) mod placed_services;
pub(crate) mod pod_reports;
pub(crate) mod pods;
pub(crate) mod preemption;
pub(crate) mod queues;
pub(crate) mod reconciling;
pub(crate) mod scheduling;
pub(crate) mod unschedulable;
pub(crate) mod usage;
