//! What the tasks of a follower share.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::ids::ServiceName;
use store::{EndpointVersion, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::FollowedCluster;
use crate::read_limit::ReadLimit;

/// How long a service is followed that no route leads to, after a pod has asked for it.
pub(crate) const WANTED_FOR: Duration = Duration::from_secs(60 * 60);

/// What the tasks of a follower share.
pub(crate) struct FollowerShared {
    pub(crate) store: Store,
    pub(crate) known: Mutex<FollowedCluster>,
    pub(crate) changed: Notify,
    /// Services that pods have asked for, and when they did last.
    pub(crate) wanted: Mutex<HashMap<ServiceName, Instant>>,
    pub(crate) is_wanted: Notify,
    /// Services of which what is known has led to no pod, and the version at which it did first.
    pub(crate) doubts: Mutex<HashMap<ServiceName, Option<EndpointVersion>>>,
    pub(crate) is_doubted: Notify,
    /// Messages may have been missed: the versions have to be compared.
    pub(crate) is_check_due: Notify,
    pub(crate) reads: ReadLimit,
    pub(crate) first_reads: ReadLimit,
}

impl FollowerShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, FollowedCluster> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wanted(&self) -> MutexGuard<'_, HashMap<ServiceName, Instant>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn doubts(&self) -> MutexGuard<'_, HashMap<ServiceName, Option<EndpointVersion>>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_followed(&self, service: &ServiceName) -> bool {
        self.wanted().contains_key(service)
            || self.lock().routing.routes.iter().any(|(routed, _)| routed == service)
    }

    /// Returns the services to be followed: those that have a route, and those that pods ask for.
    pub(crate) fn services(&self) -> BTreeSet<ServiceName> {
        let mut wanted = self.wanted();
        let now = Instant::now();
        wanted.retain(|_, asked| now.duration_since(*asked) < WANTED_FOR);
        let mut services: BTreeSet<ServiceName> = wanted.keys().cloned().collect();
        drop(wanted);
        services.extend(self.lock().routing.routes.iter().map(|(service, _)| service.clone()));
        services
    }
}
