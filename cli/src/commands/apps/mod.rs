//! Services and apps from files, for `apply` and `diff`.

pub(crate) mod app_lock;
pub(crate) mod app_values;
pub(crate) mod apply;
pub(crate) mod compose_sources;
pub(crate) mod desired_state;
pub(crate) mod diff;
pub(crate) mod effect_on_pods;
pub(crate) mod file_args;
pub(crate) mod folder_app;
pub(crate) mod lost_volumes;
pub(crate) mod prune;
pub(crate) mod service_form;
pub(crate) mod services_in_text;
pub(crate) mod write_order;
