//! Pods: the payload, which never changes, the record, which does, and the table of the phases that a pod
//! goes through (`lifecycle`). The specification of a pod is in `spec/`.

pub mod health;
pub mod image;
pub mod lifecycle;
pub mod payload;
mod record;
pub mod slot;

pub use record::{ContainerProgress, ContainerStatus, EndedRun, NodeRefusal, PodRecord, Refusal};
