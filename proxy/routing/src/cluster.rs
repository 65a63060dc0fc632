//! The proxy's knowledge of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ids::ServiceName;
use store::Routing;

use crate::endpoint_set::EndpointSet;
use crate::route::RouteTable;
use crate::snapshot::RoutingSnapshot;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FollowedCluster {
    pub(crate) routing: Arc<Routing>,
    pub(crate) sets: BTreeMap<ServiceName, EndpointSet>,
}

impl FollowedCluster {
    pub(crate) fn snapshot(&self, routes: Arc<RouteTable>) -> RoutingSnapshot {
        let endpoints = self.sets.iter().map(|(name, set)| (name.clone(), set.shared()));
        RoutingSnapshot { routes, endpoints: endpoints.collect() }
    }
}
