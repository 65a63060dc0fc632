//! Holding: the answering Redis does not know this worker's cluster. It was emptied, or is another one.
//!
//! The worker starts and removes nothing, and registers repeatedly. Its lease goes on only while the Redis
//! that granted it answers ([`crate::fencing::lease::Lease::prolong`]).

use std::time::Duration;

use model::ids::ClusterId;
use tokio::time::Instant;

use crate::worker::Worker;

pub(crate) const RETRY: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct UnknownCluster {
    last_said: Option<(String, Instant)>,
}

impl UnknownCluster {
    pub(crate) fn say(
        &mut self,
        worker: &Worker,
        cluster: &ClusterId,
        containers: u64,
        found: Option<&ClusterId>,
    ) {
        let why = reason(cluster, containers, found);
        let is_said =
            self.last_said.as_ref().is_some_and(|(said, at)| *said == why && at.elapsed() < LOG_INTERVAL);
        if !is_said {
            tracing::error!(node = %worker.node, "holding: {why}");
            worker.identity.note_hold(Some(&why));
            self.last_said = Some((why, Instant::now()));
        }
    }

    pub(crate) fn end(&mut self, worker: &Worker) {
        if self.last_said.take().is_some() {
            tracing::info!(node = %worker.node, "holding no more: Redis knows the cluster");
        }
        worker.identity.note_hold(None);
    }
}

fn reason(cluster: &ClusterId, containers: u64, found: Option<&ClusterId>) -> String {
    let what = match found {
        None => format!("this Redis does not know cluster {cluster}: it was emptied, or it is another one"),
        Some(found) => format!("this Redis is of cluster {found}, and this worker of cluster {cluster}"),
    };
    format!(
        "{what}. Its {containers} containers are left alone, and nothing is started. Check \
         KUBELEET_REDIS_URL and its database number, restore the data of Redis, or write them again with \
         `kubeleet cluster recover`; docs/how-to/when-redis-is-lost.md has more. To have this machine join the \
         cluster of this Redis instead, stop the worker and remove <node>.cluster in its KUBELEET_DATA_DIR and KUBELEET_STATE_DIR"
    )
}
