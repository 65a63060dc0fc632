//! Pods: the payload, which never changes, the record, which does, and the phases (`lifecycle`).

pub mod health;
pub mod image;
pub mod lifecycle;
pub mod payload;
mod record;
pub mod slot;

pub use record::{ContainerProgress, ContainerStatus, EndedRun, NodeRefusal, PodRecord, Refusal};
