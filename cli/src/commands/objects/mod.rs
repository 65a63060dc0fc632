//! One file per type of object, and the names of objects.

pub(crate) mod app;
pub(crate) mod cron;
pub(crate) mod edit_dead_letter;
pub(crate) mod find_pod;
pub(crate) mod job;
pub(crate) mod name_without_type;
pub(crate) mod node;
pub(crate) mod object_name;
pub(crate) mod operation_first;
pub(crate) mod pod;
pub(crate) mod queue;
pub(crate) mod recent_events;
pub(crate) mod registry;
pub(crate) mod route;
pub(crate) mod secret_and_config;
pub(crate) mod volume;
