//! Restricts access to services by name, on the caller's host: only its proxy knows the pod of the caller's
//! address.

use std::net::IpAddr;
use std::time::Duration;

use model::ids::ServiceName;
use tokio::time::{Instant, sleep};

use crate::shared::IngressShared;

/// A just started pod may be unknown here for this long.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
const KNOWN_RETRY: Duration = Duration::from_millis(20);

impl IngressShared {
    pub async fn check_caller(&self, client: IpAddr, service: &ServiceName) -> bool {
        let table = self.table.borrow().clone();
        if !table.routes.has_callers(service) {
            return true;
        }
        let from = self.service_at(client).await;
        let may = table.routes.may_reach(from.as_ref(), service);
        let due = (!may).then(|| self.warnings.unwanted.admit_counting((service.clone(), client))).flatten();
        if let Some(left_out) = due {
            let from = from.as_ref().map_or("no pod of a service", ServiceName::as_str);
            tracing::info!(
                %client, from, %service,
                "Connection refused: the `allow_from` of the service does not name it{left_out}"
            );
        }
        may
    }

    async fn service_at(&self, client: IpAddr) -> Option<ServiceName> {
        let deadline = Instant::now() + KNOWN_WITHIN;
        loop {
            match self.gates.service_at(client) {
                None if Instant::now() < deadline => sleep(KNOWN_RETRY).await,
                from => return from,
            }
        }
    }
}
