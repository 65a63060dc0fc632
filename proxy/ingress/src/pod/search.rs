//! The search for a pod that admits a request or connection.

use std::sync::Arc;
use std::time::Duration;

use model::ids::{PodId, ServiceName};
use model::network::ingress::HttpProtocol;
use tokio::time::Instant;
use tunnel::{NotAccepted, TunnelDialer, TunnelError, TunnelStream};

use crate::pod::ask_backoff::EntryRefusal;
use crate::pod::connection::{PodConnection, PoolKey};
use crate::pod::pod_path::PodPath;
use crate::pod::routing_table::{FollowedService, NoPod, Pod, RoutingTable};
use crate::shared::IngressShared;

/// Gates and closed ports do not announce that they open.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
pub struct RequestTarget<'a> {
    pub service: &'a ServiceName,
    /// `None` for any ready pod.
    pub slot: Option<u32>,
    pub port: u16,
}

pub(crate) struct Search<'a, U> {
    shared: &'a IngressShared,
    target: RequestTarget<'a>,
    usage: U,
    table: Arc<RoutingTable>,
    service: Option<Arc<FollowedService>>,
    refused: Vec<PodId>,
    has_refused_connection: bool,
    has_found_full: bool,
    deadline: Option<Instant>,
}

pub(crate) trait PathUsage: Sized {
    type ThroughTunnel;

    async fn enter(
        search: &Search<'_, Self>,
        tunnel: &TunnelDialer,
        pod: &Pod,
    ) -> Result<Box<Self::ThroughTunnel>, NoPath>;
}

/// Counts at another host's gate until its end, so it is never kept.
pub(crate) struct ForConnection;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ForRequest {
    /// True if the request may be sent again after its connection has ended.
    pub(crate) is_repeatable: bool,
    pub(crate) protocol: HttpProtocol,
}

pub(crate) enum NoPath {
    /// By the gate, or because the node has no proxy.
    Refused,
    NotAsked(EntryRefusal),
    NotListening,
    Unreachable,
}

impl PathUsage for ForConnection {
    type ThroughTunnel = TunnelStream;

    async fn enter(
        search: &Search<'_, Self>,
        tunnel: &TunnelDialer,
        pod: &Pod,
    ) -> Result<Box<TunnelStream>, NoPath> {
        let (port, within) = (search.target.port, search.shared.config.connect_within);
        let begun = Instant::now();
        let connect = async || tunnel.connect(&pod.endpoint, port, within).await;
        let stream = Box::pin(search.ask(pod, connect)).await?;
        pod.answered(port, begun.elapsed(), Instant::now().into_std());
        Ok(Box::new(stream))
    }
}

impl PathUsage for ForRequest {
    type ThroughTunnel = PodConnection;

    async fn enter(
        search: &Search<'_, Self>,
        tunnel: &TunnelDialer,
        pod: &Pod,
    ) -> Result<Box<PodConnection>, NoPath> {
        let ForRequest { is_repeatable, protocol } = search.usage;
        let (port, within) = (search.target.port, search.shared.config.connect_within);
        let key = PoolKey::of_other_host(port, protocol);
        while let Some(mut connection) = pod.pools.take(key, is_repeatable) {
            match connection.begin(is_repeatable, within).await {
                Ok(()) => return Ok(Box::new(connection)),
                Err(NotAccepted::Refused) => return Err(NoPath::Refused),
                Err(NotAccepted::Ended) => {}
                Err(NotAccepted::Unanswered) => return Err(NoPath::Unreachable),
            }
        }
        let connect = async {
            let connect = async || tunnel.connect_for_requests(&pod.endpoint, port, within).await;
            let connection = PodConnection::over_kept(search.ask(pod, connect).await?, protocol).await;
            connection.map(Box::new).map_err(|_| NoPath::Unreachable)
        };
        // Boxed to keep the request's future small: most requests do not connect.
        Box::pin(connect).await
    }
}

impl<'a, U: PathUsage> Search<'a, U> {
    pub(crate) fn new(shared: &'a IngressShared, target: RequestTarget<'a>, usage: U) -> Self {
        let table = shared.table.borrow().clone();
        Self {
            shared,
            target,
            usage,
            service: table.service(target.service).cloned(),
            table,
            refused: Vec::new(),
            has_refused_connection: false,
            has_found_full: false,
            deadline: None,
        }
    }

    pub(crate) fn service(&self) -> Option<&Arc<FollowedService>> {
        self.service.as_ref()
    }

    pub(crate) async fn next(&mut self) -> Result<(Arc<Pod>, PodPath<U::ThroughTunnel>), NoPod> {
        loop {
            if let Some(found) = self.find().await {
                return Ok(found);
            }
            self.wait().await?;
        }
    }

    async fn find(&mut self) -> Option<(Arc<Pod>, PodPath<U::ThroughTunnel>)> {
        let service = self.service.clone()?;
        let begun = Instant::now();
        let now = begun.into_std();
        loop {
            let is_tried = |pod: &Pod| self.refused.contains(&pod.endpoint.pod);
            let choose = |is_out: &dyn Fn(&Pod) -> bool| match self.target.slot {
                None => service.choose(now, is_out),
                Some(slot) => service.of_slot(slot, is_out),
            };
            // A pod on a silent host is better than none: the host may be back.
            let pod = choose(&|pod| is_tried(pod) || self.is_silent(pod)).or_else(|| choose(&is_tried));
            let Some(pod) = pod else {
                self.doubt();
                return None;
            };
            match self.enter(&pod).await {
                Ok(path) => return Some((pod, path)),
                Err(NoPath::Refused) => self.refused(&pod),
                Err(NoPath::NotAsked(refusal)) => self.rule_out(&pod, refusal == EntryRefusal::Port),
                Err(NoPath::NotListening) => {
                    pod.failed(self.target.service, now);
                    self.rule_out(&pod, true);
                }
                Err(NoPath::Unreachable) => {
                    self.rule_out_host(&pod);
                    if Instant::now() >= self.deadline_since(begun) {
                        return None;
                    }
                }
            }
        }
    }

    fn is_silent(&self, pod: &Pod) -> bool {
        self.shared.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_silent(&pod.endpoint.node))
    }

    fn doubt(&self) {
        if let Some(doubts) = &self.shared.doubts {
            doubts.note(self.target.service);
        }
    }

    async fn enter(&self, pod: &Pod) -> Result<PodPath<U::ThroughTunnel>, NoPath> {
        let (gates, endpoint) = (&self.shared.gates, &pod.endpoint);
        let entered = match &self.shared.tunnel {
            None => gates.enter(&endpoint.pod, &endpoint.assignment),
            Some(tunnel) => match gates.enter_if_here(&endpoint.pod, &endpoint.assignment) {
                Some(entered) => entered,
                None => return U::enter(self, tunnel, pod).await.map(PodPath::There),
            },
        };
        entered.map(PodPath::Here).map_err(|_| NoPath::Refused)
    }

    async fn ask<T>(
        &self,
        pod: &Pod,
        connect: impl AsyncFnOnce() -> Result<T, TunnelError>,
    ) -> Result<T, NoPath> {
        let port = self.target.port;
        pod.asking.lock().begin(port, Instant::now().into_std()).map_err(NoPath::NotAsked)?;
        let connected = connect().await;
        let now = Instant::now().into_std();
        match connected {
            Ok(connected) => {
                pod.asking.lock().let_in(port);
                Ok(connected)
            }
            Err(TunnelError::Refused(_) | TunnelError::NoProxy(_)) => {
                pod.asking.lock().refused(port, EntryRefusal::Gate, now);
                Err(NoPath::Refused)
            }
            Err(TunnelError::NotListening(_)) => {
                pod.asking.lock().refused(port, EntryRefusal::Port, now);
                Err(NoPath::NotListening)
            }
            // Each request tries for itself: on busy hosts only some connect in time.
            Err(error @ TunnelError::Unreachable { .. }) => {
                let pod = &pod.endpoint.pod;
                tracing::debug!(service = %self.target.service, %pod, %error, "Not connected");
                Err(NoPath::Unreachable)
            }
        }
    }

    pub(crate) fn refused(&mut self, pod: &Pod) {
        self.doubt();
        // Stopping servers wait for idle connections to end.
        pod.pools.clear();
        self.rule_out(pod, false);
    }

    pub(crate) fn rule_out(&mut self, pod: &Pod, has_refused_connection: bool) {
        if has_refused_connection {
            self.has_refused_connection = true;
            pod.port_refused(self.target.port, Instant::now().into_std());
        }
        self.refused.push(pod.endpoint.pod.clone());
    }

    /// The pod takes no more requests at a time.
    pub(crate) fn rule_out_full(&mut self, pod: &Pod) {
        self.has_found_full = true;
        self.rule_out(pod, false);
    }

    /// Requests prefer other hosts until this one answers.
    pub(crate) fn rule_out_host(&mut self, pod: &Pod) {
        let node = &pod.endpoint.node;
        if let Some(tunnel) = &self.shared.tunnel {
            tunnel.note_silent(node);
        }
        let Some(service) = self.service.clone() else { return };
        for lost in service.all().filter(|other| other.endpoint.node == *node) {
            lost.pools.clear();
            self.rule_out(lost, false);
        }
        self.has_refused_connection = true;
    }

    fn deadline_since(&mut self, begun: Instant) -> Instant {
        *self.deadline.get_or_insert(begun + self.shared.config.wait)
    }

    /// The port of the rule is wrong if all ready pods have refused for the maximum wait.
    fn is_hopeless(&self, now: Instant) -> bool {
        let (port, wait) = (self.target.port, self.shared.config.wait);
        let refuses = |service: &Arc<FollowedService>| service.has_refused_for(port, wait, now.into_std());
        self.has_refused_connection
            && self.target.slot.is_none()
            && self.service.as_ref().is_some_and(refuses)
    }

    fn why_none(&self) -> NoPod {
        match (self.has_found_full, self.has_refused_connection) {
            (true, _) => NoPod::Full,
            (_, true) => NoPod::NotListening,
            _ => NoPod::NotReady,
        }
    }

    async fn wait(&mut self) -> Result<(), NoPod> {
        let now = Instant::now();
        let deadline = self.deadline_since(now);
        if now >= deadline || self.is_hopeless(now) {
            return Err(self.why_none());
        }
        let mut table = self.shared.table.clone();
        if Arc::ptr_eq(&table.borrow_and_update(), &self.table) {
            let until = deadline.min(now + RETRY_INTERVAL);
            let _ = tokio::time::timeout_at(until, table.changed()).await;
        }
        self.table = table.borrow().clone();
        self.service = self.table.service(self.target.service).cloned();
        self.refused.clear();
        Ok(())
    }
}
