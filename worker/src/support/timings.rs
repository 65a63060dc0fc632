//! Fixed waits without a setting; tests shorten them.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct WorkerTimings {
    pub queue_block: Duration,
    pub sweep_interval: Duration,
    pub relist_interval: Duration,
    pub min_relist_gap: Duration,
    pub start_retry: Duration,
    /// Also in a crash loop.
    pub max_backoff: Duration,
    /// The next exit starts a new series of restarts.
    pub healthy_after: Duration,
    pub shutdown_timeout: Duration,
    /// A change of the master may lose a record that is younger than this.
    pub record_lag: Duration,
    /// Time after a change of the master in which records may be missing because of it.
    pub failover_memory: Duration,
    pub measure_interval: Duration,
    pub ended_retention: Duration,
}

impl Default for WorkerTimings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            queue_block: seconds(2),
            sweep_interval: seconds(10),
            relist_interval: seconds(30),
            min_relist_gap: Duration::from_millis(250),
            start_retry: seconds(10),
            max_backoff: seconds(300),
            healthy_after: seconds(600),
            shutdown_timeout: seconds(8),
            record_lag: seconds(10),
            failover_memory: seconds(60),
            measure_interval: seconds(300),
            ended_retention: seconds(3600),
        }
    }
}
