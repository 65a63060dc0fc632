//! Services: record, members, moves and volumes, selectors of labels, and crons. Fields are in `spec/`.

pub mod cron;
pub mod members;
pub mod moves;
mod record;
pub mod selector;
pub mod volume;

pub use record::{CronProgress, JobProgress, PODS_CREATED_INLINE, RolloutMarks, Service, ServiceState};
