//! Services: their record, moves and volumes, selectors of labels, and crons. Their fields are in `spec/`.

pub mod cron;
pub mod moves;
mod record;
pub mod selector;
pub mod volume;

pub use record::{CronProgress, JobProgress, PODS_CREATED_INLINE, RolloutMarks, Service, ServiceState};
