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
