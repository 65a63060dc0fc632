//! Metrics, and their server for daemons without an API.

mod recorder;
mod server;

pub(crate) use recorder::{
    ClusterGauges, NODE_STATES, NOT_READY, PROXY_STATES, QueuedPods, count_request, recorder, render,
    set_cluster_gauges, set_redis_gauges, upkeep,
};
#[cfg(test)]
pub(crate) use server::metrics_router;
pub use server::{MetricsServer, keep_measurements};
