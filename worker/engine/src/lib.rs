//! The interface between the worker and container engines, and its implementations.
//!
//! A runtime decides nothing and keeps no state: [`Runtime::list`] finds containers by label. Every call may
//! be repeated, and may have taken effect although its answer was lost.
//!
//! Tests: beside the code, scenarios::containers

mod container;
mod digest;
pub mod docker;
mod end_all;
mod error;
mod exec;
#[cfg(debug_assertions)]
pub mod failpoints;
pub mod file_store;
mod hint;
mod info;
mod interactive;
pub mod kept_logs;
pub mod label;
pub mod lines;
pub mod process;
mod registry_logins;
mod runtime;
pub mod sim;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod usage;
mod volume;

pub use crate::container::{Container, ContainerRequest, ContainerState, Identity, MountedFile, PodKey};
pub use crate::error::RuntimeError;
pub use crate::exec::ExecResult;
pub use crate::hint::Hint;
pub use crate::info::{EngineInfo, LocalImage};
pub use crate::interactive::{CommandControl, CommandInput, CommandOutput, CommandRequest, RunningCommand};
pub use crate::lines::{EngineLine, LineQuery, LineStream};
pub use crate::registry_logins::{NoLogins, RegistryLogins};
pub use crate::runtime::{Runtime, list_own};
pub use crate::usage::Counters;
pub use crate::volume::{EngineVolume, RequestedVolume, VolumeOwner};
