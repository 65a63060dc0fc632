//! Routes from outside the cluster, with their certificates.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use model::ids::ServiceName;
use model::network::certificate::{CertificateStatus, OrderFailure};
use model::network::ingress::IngressRule;

/// A route from outside the cluster to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteView {
    /// Its match, unique among the routes: `<host><path>`, or `tcp:<port>`.
    pub route: String,
    /// The service that it leads to.
    pub service: ServiceName,
    /// The rule of the service's `ingress`.
    pub rule: IngressRule,
    /// The certificate of its host, if that is ordered: of a rule with `tls: auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateView>,
}

/// How it stands with the certificate of a host that is ordered by ACME.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// When it expires. Absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether it is being ordered.
    #[serde(default)]
    pub is_being_ordered: bool,
    /// Why the last order has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When the next order after that begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_order_at: Option<String>,
}

impl From<CertificateStatus> for CertificateView {
    fn from(status: CertificateStatus) -> Self {
        let next = |failure: &OrderFailure| {
            let wait = failure.wait.as_millis().try_into().unwrap_or(u64::MAX);
            rfc3339(failure.at.saturating_add(wait))
        };
        Self {
            expires_at: status.certificate.map(|one| rfc3339(one.not_after.saturating_mul(1000))),
            is_being_ordered: status.begun_at.is_some(),
            next_order_at: status.failure.as_ref().map(next),
            error: status.failure.map(|failure| failure.error),
        }
    }
}
