//! Fixed waits without a setting; tests shorten them.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct WorkerTimings {
    /// Of one blocking pop of the node's queue.
    pub queue_block: Duration,
    /// Of the in-flight list (`rq`).
    pub sweep_interval: Duration,
    /// Of full listings without a request.
    pub relist_interval: Duration,
    pub min_relist_gap: Duration,
    /// After a failed image pull or container start.
    pub start_retry: Duration,
    /// Between starts of one pod, also in a crash loop.
    pub max_backoff: Duration,
    /// After such a run the next exit starts a new series of restarts.
    pub healthy_after: Duration,
    /// For running starts and stops.
    pub shutdown_timeout: Duration,
    /// A change of the master may lose the record of a pod that started less than this before it.
    pub record_lag: Duration,
    /// After a change of the master records may be missing for so long.
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
