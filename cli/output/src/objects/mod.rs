//! One file per type of object: its table rows and its description.

pub mod apps;
pub mod containers;
mod drains;
pub mod events;
mod findings;
mod garbage;
pub mod generations;
pub mod jobs;
pub mod nodes;
pub mod placements;
pub mod plans;
pub mod pods;
pub mod queues;
pub mod recovery;
pub mod registries;
pub mod routes;
pub mod secrets_and_configs;
pub mod services;
pub mod status;
pub mod usage;
pub mod volumes;
