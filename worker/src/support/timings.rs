//! Waits that no setting changes.

use std::time::Duration;

/// Waits that no setting changes; tests shorten them.
#[derive(Debug, Clone)]
pub struct WorkerTimings {
    /// How long one blocking pop of the node's queue waits in Redis.
    pub queue_block: Duration,
    /// Between two sweeps of the in-flight list (`rq`).
    pub sweep_interval: Duration,
    /// Between two full listings of the containers that nothing requested.
    pub relist_interval: Duration,
    /// Least time between two listings of the containers.
    pub min_relist_gap: Duration,
    /// The first wait after a failed image pull or container start.
    pub start_retry: Duration,
    /// The longest wait between starts of one pod, also in a crash loop.
    pub max_backoff: Duration,
    /// A container that ran this long counts as healthy: its next exit starts a new series of restarts.
    pub healthy_after: Duration,
    /// How long starts and stops under way may take to end at shutdown.
    pub shutdown_timeout: Duration,
    /// A pod that was started less than this before a change of the master may have lost its record by it.
    pub record_lag: Duration,
    /// For how long after a change of the master records may be missed that it has lost.
    pub failover_memory: Duration,
    /// Between two measurements of what volumes hold.
    pub measure_interval: Duration,
    /// How long the container of an ended pod is kept for its logs.
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
