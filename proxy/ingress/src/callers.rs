//! Restricts access to services by name, on the caller's host: only its proxy knows the pod of the caller's
//! address.

use std::net::IpAddr;

use model::ids::ServiceName;

use crate::shared::IngressShared;

impl IngressShared {
    pub async fn check_caller(&self, client: IpAddr, service: &ServiceName) -> bool {
        let table = self.table.borrow().clone();
        if !table.routes.has_callers(service) {
            return true;
        }
        let from = self.gates.service_of_caller(client).await;
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
}
