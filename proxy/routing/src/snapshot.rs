//! Snapshots of routes and endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use model::ids::ServiceName;
use model::network::endpoint::Endpoint;

use crate::route::RouteTable;

/// The endpoints of a service, in any order. Snapshots share unchanged ones.
pub type Endpoints = Arc<[Arc<Endpoint>]>;

/// Routes and endpoints at one moment.
#[derive(Debug, Clone, Default)]
pub struct RoutingSnapshot {
    /// The routes to services.
    pub routes: Arc<RouteTable>,
    /// The endpoints of each followed service.
    pub endpoints: HashMap<ServiceName, Endpoints>,
}

impl RoutingSnapshot {
    /// Returns a snapshot with the endpoints of one service.
    pub fn of_service(routes: RouteTable, service: ServiceName, endpoints: Vec<Endpoint>) -> Self {
        let endpoints = endpoints.into_iter().map(Arc::new).collect();
        Self { routes: Arc::new(routes), endpoints: HashMap::from([(service, endpoints)]) }
    }
}
