//! Containers on a Docker engine, 20.10 or newer, or on Podman through the same API.
//!
//! [`create`] is the allow-list of container options; [`engine`] keeps the only state.

mod archive;
mod binds;
mod client;
mod commands;
mod containers;
mod create;
mod deadlines;
mod engine;
mod engine_record;
mod errors;
mod files;
mod filters;
mod first_processes;
mod images;
mod lenient;
mod network;
mod raw_request;
mod run;
mod runtime;
pub mod sample_image;
mod sandbox;
#[cfg(test)]
mod tests;
mod view;
mod volumes;

pub use self::engine::DockerRuntime;
pub use self::engine_record::EngineRecord;
