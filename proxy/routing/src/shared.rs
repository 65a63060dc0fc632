//! The state shared by the tasks that follow routes and endpoints.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use model::ids::ServiceName;
use parking_lot::Mutex;
use store::{EndpointVersion, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::FollowedCluster;
use crate::read_limit::ReadLimit;

/// A service without a route is followed for this long after a pod asked for it.
pub(crate) const WANTED_FOR: Duration = Duration::from_secs(60 * 60);

pub(crate) struct FollowerShared {
    pub(crate) store: Store,
    pub(crate) known: Mutex<FollowedCluster>,
    /// `known` has changed.
    pub(crate) changed: Notify,
    /// Services that pods asked for by name, and when last.
    pub(crate) wanted: Mutex<HashMap<ServiceName, Instant>>,
    /// `wanted` has another one.
    pub(crate) wanted_more: Notify,
    /// Services whose known endpoints led to no pod, with the version known then.
    pub(crate) doubts: Mutex<HashMap<ServiceName, Option<EndpointVersion>>>,
    pub(crate) doubted: Notify,
    /// Messages may have been missed: versions must be compared.
    pub(crate) check_due: Notify,
    /// Reads of services that are known: after a failover all proxies read them again.
    pub(crate) reads: ReadLimit,
    /// Reads of the others, for which requests wait.
    pub(crate) first_reads: ReadLimit,
}

impl FollowerShared {
    /// Also true of one that was wanted too long ago, until [`services`](Self::services) drops it.
    pub(crate) fn is_followed(&self, service: &ServiceName) -> bool {
        self.wanted.lock().contains_key(service)
            || self.known.lock().routing.routes.iter().any(|(routed, _)| routed == service)
    }

    /// Services with a route, and wanted ones; forgets the ones wanted too long ago.
    pub(crate) fn services(&self) -> BTreeSet<ServiceName> {
        let mut wanted = self.wanted.lock();
        let now = Instant::now();
        wanted.retain(|_, asked| now.duration_since(*asked) < WANTED_FOR);
        let mut services: BTreeSet<ServiceName> = wanted.keys().cloned().collect();
        drop(wanted);
        services.extend(self.known.lock().routing.routes.iter().map(|(service, _)| service.clone()));
        services
    }
}
