//! Services: the desired state and its history, jobs, rollouts, dependencies, and writes that wait for the
//! replicas. Their pods are in `pod/`.
//!
//! Tests: scripts::services, scripts::scale, scripts::jobs, scripts::replacing, scripts::confirming,
//! scripts::stored_forms, scripts::global, scripts::every_operation

pub(crate) mod app_locks;
pub(crate) mod confirm;
pub(crate) mod dependencies;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod members;
pub(crate) mod prepared;
pub(crate) mod rollout_marks;
pub(crate) mod service_fields;
pub(crate) mod services;
pub(crate) mod spec_cache;
pub(crate) mod stored_spec;
