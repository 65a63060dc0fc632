//! The state shared by all connections of ingress.

use std::net::IpAddr;
use std::sync::Arc;

use daemon::log_limit::LogLimit;
use gate::Gates;
use gate::shares::TakenPlace;
use model::ids::{PodId, ServiceName};
use routing::follow::Doubts;
use tokio::sync::watch;
use tunnel::TunnelDialer;

use crate::client::places::Clients;
use crate::config::IngressConfig;
use crate::https::Https;
use crate::measure;
use crate::pod::retry_policy::NoAnswer;
use crate::pod::routing_table::{NoPod, RoutingTable};

pub struct IngressShared {
    pub(crate) config: IngressConfig,
    pub(crate) clients: Clients,
    pub(crate) https: Option<Https>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) tunnel: Option<Arc<TunnelDialer>>,
    pub(crate) doubts: Option<Doubts>,
    pub(crate) warnings: Warnings,
    pub(crate) table: watch::Receiver<Arc<RoutingTable>>,
    #[cfg(test)]
    pub(crate) ablation: Option<crate::tests::Ablation>,
}

/// A client may cause thousands of warnings in a second.
#[derive(Default)]
pub(crate) struct Warnings {
    pub(crate) failed: LogLimit<(PodId, NoAnswer)>,
    pub(crate) unserved: LogLimit<(ServiceName, u16, NoPod)>,
    pub(crate) unwanted: LogLimit<(ServiceName, IpAddr)>,
}

impl IngressShared {
    pub(crate) fn enter(&self, address: IpAddr) -> Option<TakenPlace> {
        let place = self.clients.enter(address, self.config.most_connections(address));
        if place.is_none() {
            measure::refused_connection();
        }
        place
    }
}
