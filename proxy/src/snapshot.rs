//! What the proxy knows of the cluster: the routes, and the endpoints of the services that they lead to.

use std::collections::HashMap;

use common::endpoint::Endpoint;
use common::ids::ServiceName;

use crate::route::RouteTable;

/// Routes and endpoints at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Leads from a request or connection to its service.
    pub routes: RouteTable,
    /// The endpoints of each followed service, in any order.
    pub endpoints: HashMap<ServiceName, Vec<Endpoint>>,
}
