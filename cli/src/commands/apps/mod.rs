//! Services and apps from files, for `apply` and `diff`. `file_args` and `folder_app` find the files,
//! `compose_sources` reads what they name, `services_in_text` finds the services in each, and `desired_state`
//! compares these with the cluster's. `apply` carries the difference out under the app's lock (`app_lock`),
//! with its values (`app_values`) first and `prune` last; `diff` prints it. `effect_on_pods` and
//! `lost_volumes` tell what a change would restart and lose; `service_form` is how a service is printed and
//! compared.

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
