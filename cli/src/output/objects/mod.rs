//! One file per type of object: its table rows and its description.

pub(crate) mod apps;
pub(crate) mod containers;
pub(crate) mod events;
mod findings;
mod garbage;
pub(crate) mod generations;
pub(crate) mod jobs;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod queues;
pub(crate) mod recovery;
pub(crate) mod registries;
pub(crate) mod routes;
pub(crate) mod secrets_and_configs;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod usage;
pub(crate) mod volumes;
