//! Fixed waits without a setting.

use std::time::Duration;

/// Fixed waits without a setting; tests shorten them.
#[derive(Debug, Clone)]
pub struct WorkerTimings {
    /// Time that one blocking pop of the node's queue waits in Redis.
    pub queue_block: Duration,
    /// Interval of sweeps of the in-flight list (`rq`).
    pub sweep_interval: Duration,
    /// Interval of full listings of the containers without a request.
    pub relist_interval: Duration,
    /// Minimum interval of container listings.
    pub min_relist_gap: Duration,
    /// First wait after a failed image pull or container start.
    pub start_retry: Duration,
    /// Maximum wait between starts of one pod, also in a crash loop.
    pub max_backoff: Duration,
    /// A container that ran this long counts as healthy: its next exit starts a new series of restarts.
    pub healthy_after: Duration,
    /// Time for running starts and stops to end at shutdown.
    pub shutdown_timeout: Duration,
    /// A change of the master may lose the record of a pod that started less than this before it.
    pub record_lag: Duration,
    /// Time after a change of the master in which records may be missing because of it.
    pub failover_memory: Duration,
    /// Interval of volume measurements.
    pub measure_interval: Duration,
    /// Time for which the container of an ended pod is kept for its logs.
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
