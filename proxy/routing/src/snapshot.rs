//! What the proxy knows of the cluster: the routes, and the endpoints of the services that they lead to.

use std::collections::HashMap;
use std::sync::Arc;

use model::ids::ServiceName;
use model::network::endpoint::Endpoint;

use crate::route::RouteTable;

/// The endpoints of a service at one moment, in any order. Snapshots share those that have not changed.
pub type Endpoints = Arc<[Arc<Endpoint>]>;

/// Routes and endpoints at one moment.
#[derive(Debug, Clone, Default)]
pub struct RoutingSnapshot {
    /// Leads from a request or connection to its service.
    pub routes: Arc<RouteTable>,
    /// The endpoints of each followed service.
    pub endpoints: HashMap<ServiceName, Endpoints>,
}

impl RoutingSnapshot {
    /// Returns what is known of one service.
    pub fn of_service(routes: RouteTable, service: ServiceName, endpoints: Vec<Endpoint>) -> Self {
        let endpoints = endpoints.into_iter().map(Arc::new).collect();
        Self { routes: Arc::new(routes), endpoints: HashMap::from([(service, endpoints)]) }
    }
}
