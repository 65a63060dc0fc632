//! The followed services with their pods, and the state of each pod.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use model::ids::ServiceName;
use model::network::endpoint::{Endpoint, EndpointState};
use parking_lot::Mutex;
use routing::route::RouteTable;
use routing::snapshot::{Endpoints, RoutingSnapshot};

use crate::measure::ServiceMetrics;
use crate::pod::ask_backoff::AskBackoff;
use crate::pod::connection::Pools;
use crate::pod::pick::{Failures, Latency, better_of_two, cost, not_set_aside, two_of};
use crate::pod::retry_policy::RetryBudget;

/// A port without refusals for this long may have been open meanwhile.
const REFUSAL_FORGOTTEN: Duration = Duration::from_secs(20);

/// Pods keep their state from one table to the next.
#[derive(Default)]
pub(crate) struct RoutingTable {
    pub(crate) routes: Arc<RouteTable>,
    services: HashMap<ServiceName, Arc<FollowedService>>,
}

pub(crate) struct FollowedService {
    endpoints: Option<Endpoints>,
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Reached only by requests for their slot.
    unready: Vec<Arc<Pod>>,
    pub(crate) budget: Arc<Mutex<RetryBudget>>,
    pub(crate) metrics: Arc<ServiceMetrics>,
}

pub(crate) struct Pod {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) pools: Arc<Pools>,
    in_flight: AtomicU32,
    health: Mutex<PodHealth>,
    pub(crate) asking: Mutex<AskBackoff>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NoPod {
    NotReady,
    /// Some pods were ready, but did not accept connections.
    NotListening,
    /// Some pods take no more requests at a time.
    Full,
}

#[derive(Default)]
struct PodHealth {
    latency: Latency,
    failures: Failures,
    refusing: Vec<RefusingPort>,
}

struct RefusingPort {
    port: u16,
    since: Instant,
    last: Instant,
}

/// Counts as in flight until dropped.
pub(crate) struct InFlight(Arc<Pod>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pod {
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(crate) fn answered(&self, port: u16, took: Duration, now: Instant) {
        let mut health = self.health.lock();
        health.refusing.retain(|refusing| refusing.port != port);
        health.latency.record(took, now);
        health.failures.succeeded();
    }

    /// By a failed connect, or an answer with status 502, 503 or 504.
    pub(crate) fn failed(&self, service: &ServiceName, now: Instant) {
        if let Some(ejection) = self.health.lock().failures.failed(now) {
            tracing::warn!(
                %service, pod = %self.endpoint.pod, node = %self.endpoint.node,
                "Pod failed 5 times in a row; it gets no requests for {} s if others are ready",
                ejection.as_secs()
            );
        }
    }

    pub(crate) fn port_refused(&self, port: u16, now: Instant) {
        let refusing = &mut self.health.lock().refusing;
        refusing.retain(|refusing| now.saturating_duration_since(refusing.last) < REFUSAL_FORGOTTEN);
        match refusing.iter_mut().find(|refusing| refusing.port == port) {
            Some(refusing) => refusing.last = now,
            None => refusing.push(RefusingPort { port, since: now, last: now }),
        }
    }

    pub(crate) fn has_refused_for(&self, port: u16, time: Duration, now: Instant) -> bool {
        let health = self.health.lock();
        let refusing = health.refusing.iter().find(|refusing| refusing.port == port);
        refusing.is_some_and(|refusing| now.saturating_duration_since(refusing.since) >= time)
    }

    fn cost(&self, now: Instant) -> f64 {
        cost(self.health.lock().latency.at(now), self.in_flight.load(Ordering::Relaxed))
    }

    fn set_aside_until(&self, now: Instant) -> Option<Instant> {
        self.health.lock().failures.until(now)
    }
}

impl FollowedService {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().chain(&self.unready)
    }

    pub(crate) fn of_slot(&self, slot: u32, is_tried: impl Fn(&Pod) -> bool) -> Option<Arc<Pod>> {
        self.all().find(|pod| pod.endpoint.replica == slot && !is_tried(pod)).cloned()
    }

    pub(crate) fn has_refused_for(&self, port: u16, time: Duration, now: Instant) -> bool {
        !self.pods.is_empty() && self.pods.iter().all(|pod| pod.has_refused_for(port, time, now))
    }

    pub(crate) fn choose(&self, now: Instant, is_tried: impl Fn(&Pod) -> bool) -> Option<Arc<Pod>> {
        // Usually all pods are healthy: no request checks more than two of a thousand.
        let (count, random) = (self.pods.len(), rand::random());
        let (first, second) = two_of(count, random)?;
        let is_well = |pod: &Pod| !is_tried(pod) && pod.set_aside_until(now).is_none();
        if !is_well(&self.pods[first]) || !is_well(&self.pods[second]) {
            return self.choose_of_all(now, is_tried);
        }
        better_of_two(count, random, |pod| self.pods[pod].cost(now)).map(|pod| self.pods[pod].clone())
    }

    fn choose_of_all(&self, now: Instant, is_tried: impl Fn(&Pod) -> bool) -> Option<Arc<Pod>> {
        let until: Vec<_> = self.pods.iter().map(|pod| pod.set_aside_until(now)).collect();
        let preferred = not_set_aside(&until).into_iter().map(|pod| &self.pods[pod]);
        let mut pods: Vec<_> = preferred.filter(|pod| !is_tried(pod)).collect();
        if pods.is_empty() {
            // A failing pod is better than none.
            pods = self.pods.iter().filter(|pod| !is_tried(pod)).collect();
        }
        let chosen = better_of_two(pods.len(), rand::random(), |pod| pods[pod].cost(now))?;
        Some(pods[chosen].clone())
    }
}

impl RoutingTable {
    pub(crate) fn service(&self, name: &ServiceName) -> Option<&Arc<FollowedService>> {
        self.services.get(name)
    }

    pub(crate) fn end_old_connections(&self) {
        self.services.values().flat_map(|service| service.all()).for_each(|pod| pod.pools.end_old());
    }

    pub(crate) fn next(&self, snapshot: &RoutingSnapshot, new_pools: &impl Fn() -> Arc<Pools>) -> Self {
        let followed: BTreeSet<_> = snapshot.routes.services().chain(snapshot.endpoints.keys()).collect();
        let services = followed.into_iter().map(|name| {
            let endpoints = snapshot.endpoints.get(name);
            let before = self.services.get(name);
            let same = before.filter(|before| before.is_made_of(endpoints)).cloned();
            (
                name.clone(),
                same.unwrap_or_else(|| Arc::new(FollowedService::next(before, name, endpoints, new_pools))),
            )
        });
        Self { services: services.collect(), routes: snapshot.routes.clone() }
    }
}

impl FollowedService {
    fn is_made_of(&self, endpoints: Option<&Endpoints>) -> bool {
        match (&self.endpoints, endpoints) {
            (Some(own), Some(endpoints)) => Arc::ptr_eq(own, endpoints),
            (own, endpoints) => own.is_none() && endpoints.is_none(),
        }
    }

    fn next(
        before: Option<&Arc<Self>>,
        name: &ServiceName,
        endpoints: Option<&Endpoints>,
        new_pools: &impl Fn() -> Arc<Pools>,
    ) -> Self {
        let of = |endpoint: &'_ Endpoint| (endpoint.pod.clone(), endpoint.assignment.clone());
        let known: HashMap<_, _> =
            before.iter().flat_map(|before| before.all()).map(|pod| (of(&pod.endpoint), pod)).collect();
        let in_state = |state| {
            let endpoints = endpoints.into_iter().flat_map(|all| all.iter());
            let endpoints = endpoints.filter(move |endpoint| endpoint.state == state);
            endpoints.map(|endpoint| match known.get(&of(endpoint)) {
                Some(pod) => Arc::clone(pod),
                None => new_pod(endpoint, new_pools()),
            })
        };
        Self {
            endpoints: endpoints.cloned(),
            pods: in_state(EndpointState::Ready).collect(),
            unready: in_state(EndpointState::Running).collect(),
            budget: before.map_or_else(
                || Arc::new(Mutex::new(RetryBudget::new(Instant::now()))),
                |before| before.budget.clone(),
            ),
            metrics: before
                .map_or_else(|| Arc::new(ServiceMetrics::new(name)), |before| before.metrics.clone()),
        }
    }
}

fn new_pod(endpoint: &Arc<Endpoint>, pools: Arc<Pools>) -> Arc<Pod> {
    Arc::new(Pod {
        endpoint: endpoint.clone(),
        pools,
        in_flight: AtomicU32::new(0),
        health: Mutex::default(),
        asking: Mutex::default(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gate::fixtures::endpoint;

    use super::*;

    fn service(pods: usize) -> FollowedService {
        let pod = |number: usize| {
            let endpoint = Arc::new(endpoint(&format!("p{number}"), EndpointState::Ready));
            let (pools, in_flight) = (Arc::default(), AtomicU32::new(0));
            Arc::new(Pod { endpoint, pools, in_flight, health: Mutex::default(), asking: Mutex::default() })
        };
        let name = ServiceName::new("web").unwrap();
        FollowedService {
            endpoints: None,
            pods: (0..pods).map(pod).collect(),
            unready: Vec::new(),
            budget: Arc::new(Mutex::new(RetryBudget::new(Instant::now()))),
            metrics: Arc::new(ServiceMetrics::new(&name)),
        }
    }

    #[test]
    fn a_request_looks_at_two_pods_of_a_thousand() {
        let service = service(1000);
        let looked_at = Cell::new(0);
        let look = |_: &Pod| {
            looked_at.set(looked_at.get() + 1);
            false
        };
        assert!(service.choose(Instant::now(), look).is_some());
        assert_eq!(looked_at.get(), 2);
    }

    #[test]
    fn a_port_is_not_waited_for_that_all_pods_have_refused_for_long() {
        let (start, service) = (Instant::now(), service(2));
        let seconds = Duration::from_secs;
        for second in 0..=10 {
            assert!(!service.has_refused_for(80, seconds(10), start + seconds(9)));
            service.pods.iter().for_each(|pod| pod.port_refused(80, start + seconds(second)));
        }
        assert!(service.has_refused_for(80, seconds(10), start + seconds(10)));
        assert!(!service.has_refused_for(81, seconds(10), start + seconds(10)), "another port");
        service.pods[0].answered(81, Duration::ZERO, start);
        assert!(service.has_refused_for(80, seconds(10), start + seconds(10)));
        service.pods[0].answered(80, Duration::ZERO, start);
        assert!(!service.has_refused_for(80, seconds(10), start + seconds(10)), "one accepts");
        service.pods.iter().for_each(|pod| pod.port_refused(80, start + seconds(60)));
        assert!(!service.has_refused_for(80, seconds(10), start + seconds(60)));
    }

    #[test]
    fn the_only_pod_that_is_neither_tried_nor_set_aside_is_found() {
        let now = Instant::now();
        let service = service(20);
        for pod in &service.pods[..9] {
            (0..5).for_each(|_| pod.failed(&ServiceName::new("web").unwrap(), now));
        }
        for _ in 0..100 {
            let chosen = service.choose(now, |pod| pod.endpoint.pod.as_str() >= "p1").unwrap();
            assert_eq!(chosen.endpoint.pod.as_str(), "p0", "the others were tried");
            let chosen = service.choose(now, |pod| pod.endpoint.pod.as_str() != "p9");
            assert_eq!(chosen.unwrap().endpoint.pod.as_str(), "p9");
            let chosen = service.choose(now, |_| false).unwrap();
            assert!(service.pods[9..].iter().any(|pod| Arc::ptr_eq(pod, &chosen)), "others are set aside");
            assert!(service.choose(now, |_| true).is_none());
        }
    }
}
