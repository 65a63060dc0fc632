//! Pods: their record, and what belongs to one.

pub mod health;
pub mod image;
pub mod lifecycle;
pub mod payload;
mod record;
pub mod slot;

pub use record::{ContainerProgress, ContainerStatus, EndedRun, NodeRefusal, PodRecord, Refusal};
