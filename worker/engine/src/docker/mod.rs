//! Containers on a Docker engine, 20.10 or newer, or on Podman through the same API.
//!
//! [`client`] is the connection, with [`deadlines`] for each call. [`create`] is the allow-list of what a
//! container may have. [`errors`] sorts the engine's errors. [`run`], [`containers`] and [`images`] are the
//! calls that change something, [`commands`] those that run commands in a container. [`view`] translates the
//! engine's answers. The only state kept in [`engine`] is which pulls are under way, which images were just
//! seen, which commands in containers have not ended, and whether new containers join the [`network`] of
//! pods.

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
