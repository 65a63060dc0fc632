//! The members of a global service: its nodes, each with the number of its pod.
//!
//! Tests: scripts::global

use crate::reply::word;
use crate::scripts::members_put;
use crate::{Store, StoreError, keys};
use model::ids::WriteId;
use model::service::Service;
use model::service::members::Members;

impl Store {
    /// Decisions of schedulers that have read others are refused from now on. `news` tells whose pods come
    /// and go, if any. Returns false if the service has changed since it was read.
    pub async fn put_members(
        &self,
        service: &Service,
        members: &Members,
        news: Option<&str>,
    ) -> Result<bool, StoreError> {
        let call = members_put::Head {
            service_key: keys::service(&service.name),
            service: &service.name,
            seen_members: service.members.as_stored(),
            members: members.as_stored(),
            slots: members.slots(),
            mark: &WriteId::random(),
            message: news.unwrap_or_default(),
        }
        .call();
        Ok(word("storing the members of a service", self.link.script(&call).await?)? == "OK")
    }
}
