//! The gate of each pod of this host. It counts admitted requests, and refuses new ones once the pod's stop
//! began.
//!
//! A refused request can safely go to another pod.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use metrics::Counter;
use model::ids::{AssignmentId, PodId, ServiceName};
use model::network::handover::LocalPod;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use crate::counters;
use crate::unknown_callers::UnknownCallers;

/// A container may ask before its worker has told that it runs.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
const KNOWN_RETRY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct Gates {
    pods: RwLock<GatedPods>,
    unknown_callers: UnknownCallers,
    let_in: Counter,
    refused_closed: Counter,
    refused_unknown: Counter,
    /// For tests: gates count, and admit everything.
    #[cfg(any(test, feature = "fixtures"))]
    lets_all_in: AtomicBool,
}

#[derive(Debug, Default)]
struct GatedPods {
    /// By assignment: a pod that moves between two workers of this host appears twice.
    gates: HashMap<AssignmentId, Arc<PodGate>>,
    /// The engine reuses a stopped pod's address, and rows arrive in any order: the running pod holds it.
    addresses: HashMap<IpAddr, AssignmentId>,
}

impl GatedPods {
    fn insert(&mut self, pod: LocalPod) -> Option<Arc<PodGate>> {
        let before = self.gates.insert(pod.assignment.clone(), PodGate::new(pod.clone()));
        self.take_address(&pod);
        if let Some(before) = before.as_ref().filter(|before| before.pod.address != pod.address) {
            self.forget_address(&before.pod);
        }
        before
    }

    /// An open pod keeps its address against a closed one. An ended pod has none.
    fn take_address(&mut self, pod: &LocalPod) {
        if pod.ended {
            return self.forget_address(pod);
        }
        let holder = self.addresses.get(&pod.address).and_then(|holder| self.gates.get(holder));
        let is_free = holder.is_none_or(|holder| !holder.is_open.load(Ordering::SeqCst));
        if pod.open || is_free {
            self.addresses.insert(pod.address, pod.assignment.clone());
        }
    }

    fn remove(&mut self, assignment: &AssignmentId) -> Option<Arc<PodGate>> {
        let gate = self.gates.remove(assignment)?;
        self.forget_address(&gate.pod);
        Some(gate)
    }

    fn forget_address(&mut self, pod: &LocalPod) {
        if self.addresses.get(&pod.address) == Some(&pod.assignment) {
            self.addresses.remove(&pod.address);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnterError {
    #[error("the pod is not on this host")]
    Unknown,
    #[error("the pod is about to be stopped")]
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    pub after: Duration,
    pub cut: u64,
}

#[derive(Debug)]
struct PodGate {
    pod: LocalPod,
    is_open: AtomicBool,
    is_ready: AtomicBool,
    has_ended: AtomicBool,
    in_flight: AtomicU64,
    idle: Notify,
    drains: AtomicU64,
    is_removed: AtomicBool,
    /// Set before `cut` is notified.
    is_cut: AtomicBool,
    cut: Arc<Notify>,
}

/// The request or connection is in flight until this is dropped.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<PodGate>,
}

impl Pass {
    pub fn address(&self) -> IpAddr {
        self.gate.pod.address
    }

    pub fn pod(&self) -> &LocalPod {
        &self.gate.pod
    }

    pub fn is_open(&self) -> bool {
        self.gate.is_open.load(Ordering::SeqCst)
    }

    pub fn cut(&self) -> Cut {
        let notified = Box::pin(self.gate.cut.clone().notified_owned());
        Cut { gate: self.gate.clone(), notified }
    }
}

/// Completes when all requests of the gate must end. Reusable for several requests.
#[derive(Debug)]
pub struct Cut {
    gate: Arc<PodGate>,
    notified: Pin<Box<OwnedNotified>>,
}

impl Cut {
    pub fn is_of(&self, pass: &Pass) -> bool {
        Arc::ptr_eq(&self.gate, &pass.gate)
    }

    pub fn has_come(&self) -> bool {
        self.gate.is_cut.load(Ordering::SeqCst)
    }
}

impl Future for Cut {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Registers before it checks, so that no notification is missed.
        if !self.has_come() && self.notified.as_mut().poll(cx).is_pending() && !self.has_come() {
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.leave();
    }
}

struct Draining<'a>(&'a PodGate);

impl<'a> Draining<'a> {
    fn begin(gate: &'a PodGate) -> Self {
        gate.drains.fetch_add(1, Ordering::SeqCst);
        Self(gate)
    }
}

impl Drop for Draining<'_> {
    /// Then the worker has died and the pod is gone: nothing else would cut its connections.
    fn drop(&mut self) {
        if self.0.drains.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_removed.load(Ordering::SeqCst) {
            self.0.cut();
        }
    }
}

impl PodGate {
    fn new(pod: LocalPod) -> Arc<Self> {
        let (is_open, is_ready) = (AtomicBool::new(pod.open), AtomicBool::new(pod.ready));
        let has_ended = AtomicBool::new(pod.ended);
        Arc::new(Self {
            pod,
            is_open,
            is_ready,
            has_ended,
            in_flight: AtomicU64::new(0),
            idle: Notify::new(),
            drains: AtomicU64::new(0),
            is_removed: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            cut: Arc::default(),
        })
    }

    /// Counts before it checks: a drain might otherwise read zero just before the request enters.
    fn enter(self: &Arc<Self>) -> Result<Pass, EnterError> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let pass = Pass { gate: self.clone() };
        if self.is_open.load(Ordering::SeqCst) { Ok(pass) } else { Err(EnterError::Closed) }
    }

    fn leave(&self) {
        if self.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.idle.notify_waiters();
        }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    fn is_same_start(&self, pod: &LocalPod) -> bool {
        let own = &self.pod;
        (&own.assignment, own.start, own.address) == (&pod.assignment, pod.start, pod.address)
    }

    async fn wait_idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.in_flight.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            pods: RwLock::default(),
            unknown_callers: UnknownCallers::default(),
            let_in: counters::let_in(),
            refused_closed: counters::refused("closed"),
            refused_unknown: counters::refused("unknown"),
            #[cfg(any(test, feature = "fixtures"))]
            lets_all_in: AtomicBool::default(),
        }
    }
}

impl Gates {
    pub fn enter(&self, pod: &PodId, assignment: &AssignmentId) -> Result<Pass, EnterError> {
        self.enter_if_here(pod, assignment).unwrap_or_else(|| {
            self.refused_unknown.increment(1);
            Err(EnterError::Unknown)
        })
    }

    pub fn enter_if_here(&self, pod: &PodId, assignment: &AssignmentId) -> Option<Result<Pass, EnterError>> {
        let gate = self.find(pod, assignment)?;
        #[cfg(any(test, feature = "fixtures"))]
        if self.lets_all_in.load(Ordering::Relaxed) {
            gate.in_flight.fetch_add(1, Ordering::SeqCst);
            return Some(Ok(Pass { gate }));
        }
        let entered = gate.enter();
        let counter = if entered.is_ok() { &self.let_in } else { &self.refused_closed };
        counter.increment(1);
        Some(entered)
    }

    /// Tests must detect this.
    #[cfg(any(test, feature = "fixtures"))]
    pub fn let_all_in(&self) {
        self.lets_all_in.store(true, Ordering::Relaxed);
    }

    /// A restart of the container cuts the requests to the old one.
    pub fn set(&self, pod: LocalPod) {
        let mut pods = self.pods.write();
        match pods.gates.get(&pod.assignment) {
            // A reopened gate would cut everything that it admits.
            Some(gate) if gate.is_same_start(&pod) && !(pod.open && gate.is_cut.load(Ordering::SeqCst)) => {
                gate.is_open.store(pod.open, Ordering::SeqCst);
                gate.is_ready.store(pod.ready, Ordering::Relaxed);
                gate.has_ended.store(pod.ended, Ordering::Relaxed);
                pods.take_address(&pod);
            }
            _ => {
                if let Some(before) = pods.insert(pod) {
                    before.cut();
                }
            }
        }
    }

    /// Cuts connections unless a drain will: a container killed with its network leaves some that never end.
    pub fn remove(&self, assignment: &AssignmentId) {
        if let Some(gate) = self.pods.write().remove(assignment) {
            gate.is_open.store(false, Ordering::SeqCst);
            gate.is_removed.store(true, Ordering::SeqCst);
            if gate.drains.load(Ordering::SeqCst) == 0 {
                gate.cut();
            }
        }
    }

    /// Requests in flight go on, and keep the closed gate for a later drain.
    pub fn forget(&self, assignment: &AssignmentId) {
        let mut pods = self.pods.write();
        let Some(gate) = pods.gates.get(assignment) else { return };
        gate.is_open.store(false, Ordering::SeqCst);
        if gate.in_flight.load(Ordering::SeqCst) == 0 {
            pods.remove(assignment);
        }
    }

    pub fn row(&self, assignment: &AssignmentId) -> Option<LocalPod> {
        let pods = self.pods.read();
        let gate = pods.gates.get(assignment)?;
        let (open, ready) = (gate.is_open.load(Ordering::SeqCst), gate.is_ready.load(Ordering::Relaxed));
        let ended = gate.has_ended.load(Ordering::Relaxed);
        Some(LocalPod { open, ready, ended, ..gate.pod.clone() })
    }

    pub fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        self.pod_at(address)?
    }

    /// True if it is not known yet whether the caller is a pod: [`service_of_caller`] waits.
    ///
    /// [`service_of_caller`]: Self::service_of_caller
    pub fn may_become_known(&self, caller: IpAddr) -> bool {
        self.pod_at(caller).is_none() && !self.unknown_callers.has(caller)
    }

    /// `None` also for a pod without a service.
    pub async fn service_of_caller(&self, caller: IpAddr) -> Option<ServiceName> {
        let deadline = Instant::now() + KNOWN_WITHIN;
        while self.may_become_known(caller) {
            if Instant::now() >= deadline {
                self.unknown_callers.add(caller);
                return None;
            }
            tokio::time::sleep(KNOWN_RETRY).await;
        }
        self.service_at(caller)
    }

    /// The service of the pod, if it has one.
    fn pod_at(&self, address: IpAddr) -> Option<Option<ServiceName>> {
        let pods = self.pods.read();
        Some(pods.gates.get(pods.addresses.get(&address)?)?.pod.service.clone())
    }

    pub fn close(&self, pod: &PodId, assignment: &AssignmentId) -> u64 {
        self.find(pod, assignment).map_or(0, |gate| {
            gate.is_open.store(false, Ordering::SeqCst);
            gate.in_flight.load(Ordering::SeqCst)
        })
    }

    /// Cuts the rest after `within`. `None` if the pod was reopened.
    ///
    /// # Cancel safety
    /// The gate stays closed.
    pub async fn drained(&self, pod: &PodId, assignment: &AssignmentId, within: Duration) -> Option<Drained> {
        let closed_at = Instant::now();
        let mut cut = 0;
        if let Some(gate) = self.find(pod, assignment) {
            let _draining = Draining::begin(&gate);
            if tokio::time::timeout(within, gate.wait_idle()).await.is_err() {
                cut = self.cut_if_closed(&gate)?;
                gate.wait_idle().await;
            }
            if gate.is_open.load(Ordering::SeqCst) {
                return None;
            }
        }
        counters::drained(cut);
        Some(Drained { after: closed_at.elapsed(), cut })
    }

    fn cut_if_closed(&self, gate: &PodGate) -> Option<u64> {
        // Gates are opened under this lock.
        let _pods = self.pods.write();
        if gate.is_open.load(Ordering::SeqCst) {
            return None;
        }
        let left = gate.in_flight.load(Ordering::SeqCst);
        gate.cut();
        Some(left)
    }

    fn find(&self, pod: &PodId, assignment: &AssignmentId) -> Option<Arc<PodGate>> {
        self.pods.read().gates.get(assignment).filter(|gate| gate.pod.pod == *pod).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::local_pod;
    use crate::unknown_callers::KEPT_FOR;

    fn pod(assignment: &str, start: u64) -> LocalPod {
        LocalPod { assignment: AssignmentId::new(assignment).unwrap(), start, ..local_pod("p") }
    }

    fn enter(gates: &Gates, assignment: &str) -> Result<Pass, EnterError> {
        gates.enter(&PodId::new("p").unwrap(), &AssignmentId::new(assignment).unwrap())
    }

    #[test]
    fn only_the_open_gate_of_the_right_assignment_lets_in() {
        let gates = Gates::default();
        assert_eq!(enter(&gates, "a").unwrap_err(), EnterError::Unknown);
        gates.set(pod("a", 1));
        assert!(enter(&gates, "a").is_ok());
        assert_eq!(enter(&gates, "b").unwrap_err(), EnterError::Unknown);
        gates.close(&pod("a", 1).pod, &pod("a", 1).assignment);
        assert_eq!(enter(&gates, "a").unwrap_err(), EnterError::Closed);
        // The stop was revoked.
        gates.set(pod("a", 1));
        assert!(enter(&gates, "a").is_ok());
    }

    #[test]
    fn an_address_is_that_of_the_pod_that_runs_in_whatever_order_rows_come() {
        let of_service = |assignment: &str, service: &str, open| LocalPod {
            service: Some(ServiceName::new(service).unwrap()),
            open,
            ..pod(assignment, 1)
        };
        let (stopped, runs) = (of_service("a", "old", false), of_service("b", "new", true));
        let service_at = |gates: &Gates| gates.service_at(runs.address).map(|service| service.to_string());
        for rows in [[&stopped, &runs], [&runs, &stopped]] {
            let gates = Gates::default();
            rows.into_iter().for_each(|row| gates.set(row.clone()));
            assert_eq!(service_at(&gates).as_deref(), Some("new"), "{rows:?}");
            gates.set(stopped.clone());
            assert_eq!(service_at(&gates).as_deref(), Some("new"), "{rows:?}");
            gates.set(of_service("b", "new", false));
            gates.set(of_service("a", "old", true));
            assert_eq!(service_at(&gates).as_deref(), Some("old"), "{rows:?}");
            gates.remove(&runs.assignment);
            assert_eq!(service_at(&gates).as_deref(), Some("old"), "{rows:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_waited_for_until_its_pod_is_known_and_any_other_address_once() {
        let gates = Arc::new(Gates::default());
        let address = "203.0.113.2".parse().unwrap();
        let pod = LocalPod { service: ServiceName::new("web").ok(), address, ..pod("a", 1) };
        let asks = {
            let (gates, address) = (gates.clone(), pod.address);
            tokio::spawn(async move { gates.service_of_caller(address).await })
        };
        tokio::time::sleep(KNOWN_WITHIN / 2).await;
        gates.set(pod.clone());
        assert_eq!(asks.await.unwrap(), pod.service);

        let other: IpAddr = "203.0.113.1".parse().unwrap();
        let waited = async |address| {
            let begun = Instant::now();
            assert_eq!(gates.service_of_caller(address).await, None);
            begun.elapsed()
        };
        assert!(waited(other).await >= KNOWN_WITHIN);
        assert_eq!(waited(other).await, Duration::ZERO);
        tokio::time::sleep(KEPT_FOR).await;
        assert!(waited(other).await >= KNOWN_WITHIN, "another container may have the address now");
        assert_eq!(waited(std::net::Ipv4Addr::LOCALHOST.into()).await, Duration::ZERO, "the host itself");
    }

    #[test]
    fn the_address_of_a_pod_that_has_ended_is_nobodys_until_a_row_says_whose_it_is() {
        let gates = Gates::default();
        let service = Some(ServiceName::new("old").unwrap());
        let runs = LocalPod { service, ..pod("a", 1) };
        let is_known = || gates.service_at(runs.address).is_some();
        gates.set(runs.clone());
        gates.set(LocalPod { open: false, ..runs.clone() });
        assert!(is_known(), "it is being stopped, and runs");
        let ended = LocalPod { open: false, ended: true, ..runs.clone() };
        gates.set(ended.clone());
        assert!(!is_known());
        gates.set(LocalPod { start: 2, ..ended });
        assert!(!is_known());
        gates.set(LocalPod { start: 2, ..runs.clone() });
        assert!(is_known(), "its container was started again");
    }

    #[test]
    fn what_is_in_flight_to_a_forgotten_pod_counts_again_when_the_pod_is_known_again() {
        let gates = Gates::default();
        gates.set(pod("a", 1));
        let pass = enter(&gates, "a").unwrap();
        gates.forget(&pod("a", 1).assignment);
        assert!(enter(&gates, "a").is_err());
        gates.set(pod("a", 1));
        assert!(enter(&gates, "a").is_ok());
        assert_eq!(gates.close(&pod("a", 1).pod, &pod("a", 1).assignment), 1);
        drop(pass);
        gates.forget(&pod("a", 1).assignment);
        assert_eq!(enter(&gates, "a").unwrap_err(), EnterError::Unknown);
    }

    #[tokio::test]
    async fn a_drain_ends_when_the_last_request_has_ended() {
        let gates = Arc::new(Gates::default());
        let row = pod("a", 1);
        gates.set(row.clone());
        let (first, second) = (enter(&gates, "a").unwrap(), enter(&gates, "a").unwrap());
        assert_eq!(gates.close(&row.pod, &row.assignment), 2);
        let drain = gates.drained(&row.pod, &row.assignment, Duration::from_secs(60));
        tokio::pin!(drain);
        assert!(futures_util::poll!(&mut drain).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut drain).is_pending());
        drop(second);
        assert_eq!(drain.await.unwrap().cut, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_than_allowed_is_cut_and_counted() {
        let gates = Arc::new(Gates::default());
        let row = pod("a", 1);
        gates.set(row.clone());
        let pass = enter(&gates, "a").unwrap();
        gates.close(&row.pod, &row.assignment);
        let request = tokio::spawn(async move { pass.cut().await });
        let drained = gates.drained(&row.pod, &row.assignment, Duration::from_secs(30)).await;
        assert_eq!(drained, Some(Drained { after: Duration::from_secs(30), cut: 1 }));
        request.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_drain_waits_for_has_its_time_also_if_the_pod_is_removed_meanwhile() {
        let gates = Arc::new(Gates::default());
        let row = pod("a", 1);
        for gives_up in [false, true] {
            gates.set(row.clone());
            let pass = enter(&gates, "a").unwrap();
            let cut = pass.cut();
            gates.close(&row.pod, &row.assignment);
            let mut drain = Box::pin(gates.drained(&row.pod, &row.assignment, Duration::from_secs(30)));
            assert!(futures_util::poll!(&mut drain).is_pending());
            gates.remove(&row.assignment);
            assert!(!cut.has_come());
            if gives_up {
                drop(drain);
                assert!(cut.has_come());
                continue;
            }
            let request = tokio::spawn(async move {
                pass.cut().await;
                drop(pass);
            });
            assert_eq!(drain.await, Some(Drained { after: Duration::from_secs(30), cut: 1 }));
            request.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_restart_of_the_container_cuts_what_was_in_flight_to_the_one_before() {
        let gates = Gates::default();
        gates.set(pod("a", 1));
        let before = enter(&gates, "a").unwrap();
        gates.set(pod("a", 2));
        before.cut().await;
        assert_eq!(enter(&gates, "a").unwrap().pod().start, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_flight_goes_on_when_the_stop_was_revoked() {
        let gates = Gates::default();
        let row = pod("a", 1);
        gates.set(row.clone());
        let pass = enter(&gates, "a").unwrap();
        gates.close(&row.pod, &row.assignment);
        let drain = gates.drained(&row.pod, &row.assignment, Duration::from_secs(30));
        tokio::pin!(drain);
        assert!(futures_util::poll!(&mut drain).is_pending());
        gates.set(row.clone());
        assert_eq!(drain.await, None);
        assert!(futures_util::poll!(Box::pin(pass.cut())).is_pending());
        assert!(enter(&gates, "a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_that_is_opened_after_a_cut_cuts_nothing_that_it_lets_in() {
        let gates = Gates::default();
        let row = pod("a", 1);
        gates.set(row.clone());
        let before = enter(&gates, "a").unwrap();
        gates.close(&row.pod, &row.assignment);
        let request = tokio::spawn(async move { before.cut().await });
        gates.drained(&row.pod, &row.assignment, Duration::ZERO).await;
        request.await.unwrap();
        gates.set(row);
        let after = enter(&gates, "a").unwrap();
        assert!(futures_util::poll!(Box::pin(after.cut())).is_pending());
    }

    #[tokio::test]
    async fn a_pod_that_moves_between_two_workers_of_a_host_is_here_twice() {
        let gates = Gates::default();
        gates.set(pod("a", 1));
        let before = enter(&gates, "a").unwrap();
        gates.set(pod("b", 1));
        gates.close(&pod("a", 1).pod, &pod("a", 1).assignment);
        assert!(futures_util::poll!(Box::pin(before.cut())).is_pending());
        assert_eq!(enter(&gates, "a").unwrap_err(), EnterError::Closed);
        gates.remove(&pod("a", 1).assignment);
        before.cut().await;
        assert!(enter(&gates, "b").is_ok());
    }

    #[test]
    fn no_request_is_let_in_after_the_count_was_read_as_zero() {
        for _ in 0..2_000 {
            let gates = Gates::default();
            let row = pod("a", 1);
            gates.set(row.clone());
            let was_stopped = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    if let Ok(pass) = enter(&gates, "a") {
                        assert!(!was_stopped.load(Ordering::SeqCst), "let in, and the pod was stopped");
                        drop(pass);
                    }
                });
                if gates.close(&row.pod, &row.assignment) == 0 {
                    was_stopped.store(true, Ordering::SeqCst);
                }
            });
        }
    }
}
