//! Routes: what is reached from outside the cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::ServiceName;
use crate::ingress::IngressRule;

/// A route: what leads to a service from outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteView {
    /// What it matches, which no other route has: `<host><path>`, or `tcp:<port>`.
    pub route: String,
    /// The service that it leads to.
    pub service: ServiceName,
    /// The rule of the service's `ingress`.
    pub rule: IngressRule,
}
