//! The metrics of this process, and a server of them for daemons that have no API.

mod recorder;
mod server;

pub(crate) use recorder::{
    ClusterGauges, NODE_STATES, NOT_READY, PROXY_STATES, QUEUES, count_request, recorder, render,
    set_cluster_gauges, set_redis_gauges, upkeep,
};
#[cfg(test)]
pub(crate) use server::testing;
pub use server::{MetricsServer, keep_measurements};
