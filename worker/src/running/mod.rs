//! Reconciles the pods here. Begin with `reconcile_pass`: it lists the containers, `step` decides for each
//! pod, and `actions` acts. Containers without a pod are handled by `unrecorded`, `held_pods` and `remove`.
//!
//! Tests: beside the code, tests::reconciling, tests::holding, tests::pre_stop, scenarios::ends, schedules

pub(crate) mod actions;
pub(crate) mod doubted_containers;
pub(crate) mod ended_pods;
pub(crate) mod ended_runs;
pub(crate) mod engine_hints;
pub(crate) mod health_checks;
pub(crate) mod held_pods;
pub(crate) mod lost_reports;
pub(crate) mod read_back;
pub(crate) mod reconcile_loop;
pub(crate) mod reconcile_pass;
pub(crate) mod reload_files;
pub(crate) mod remove;
pub(crate) mod step;
pub(crate) mod stop_order;
pub(crate) mod table;
pub(crate) mod unknown_pods;
pub(crate) mod unrecorded;
