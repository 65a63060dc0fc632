//! Services: their record, their volumes, and the schedules of crons.

pub mod cron;
mod record;
pub mod selector;
pub mod volume;

pub use record::{CronProgress, JobProgress, PODS_CREATED_INLINE, RolloutMarks, Service, ServiceState};
