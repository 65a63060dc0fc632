//! Snapshots of routes and endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use model::ids::ServiceName;
use model::network::endpoint::Endpoint;

use crate::route::RouteTable;

/// Snapshots share unchanged ones.
pub type Endpoints = Arc<[Arc<Endpoint>]>;

#[derive(Debug, Clone, Default)]
pub struct RoutingSnapshot {
    pub routes: Arc<RouteTable>,
    pub endpoints: HashMap<ServiceName, Endpoints>,
}

impl RoutingSnapshot {
    pub fn of_service(routes: RouteTable, service: ServiceName, endpoints: Vec<Endpoint>) -> Self {
        let endpoints = endpoints.into_iter().map(Arc::new).collect();
        Self { routes: Arc::new(routes), endpoints: HashMap::from([(service, endpoints)]) }
    }
}
