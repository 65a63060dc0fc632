//! Pods: their record and its parts.

pub mod health;
pub mod image;
pub mod lifecycle;
pub mod payload;
mod record;
pub mod slot;

pub use record::{ContainerProgress, ContainerStatus, EndedRun, NodeRefusal, PodRecord, Refusal};
