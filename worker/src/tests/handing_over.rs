//! Stops with the socket of a real proxy: nothing stops before its gate has drained.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::sim::SimOptions;
use engine::testing::identity;
use engine::{Container, ContainerState, Identity};
use futures_util::FutureExt;
use model::network::handover::LocalPod;
use model::pod::lifecycle::Phase;
use model::spec::OnDisconnect;
use parking_lot::Mutex;
use proxy::LocalServer;
use proxy::gate::{EnterError, Gates, Pass};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rig::{Rig, RunningWorker, eventually, id, payload, payload_with};
use crate::handover::close_all::drain_and_stop;
use crate::handover::socket::ProxySocket;

const STOP: &str = r#""on_disconnect":"stop""#;

fn rig(test: &str) -> Option<Rig> {
    Rig::with_engine(test, SimOptions { host_network: true, ..SimOptions::default() })
}

fn socket(rig: &Rig) -> PathBuf {
    rig.config.proxy_socket.clone().unwrap()
}

struct Host {
    gates: Arc<Gates>,
    shutdown: CancellationToken,
    served: JoinHandle<proxy::SocketEnd>,
}

impl Host {
    async fn start(rig: &Rig) -> Self {
        let (gates, shutdown) = (Arc::new(Gates::default()), CancellationToken::new());
        let server = LocalServer::bind(socket(rig), gates.clone()).await.unwrap();
        let served = tokio::spawn(server.run(shutdown.clone()));
        Self { gates, shutdown, served }
    }

    async fn enter(&self, rig: &Rig, pod: &str) -> Result<Pass, EnterError> {
        let assignment = rig.record(pod).await.unwrap().assignment.unwrap();
        self.gates.enter(&id(pod), &assignment)
    }

    async fn until_open(&self, rig: &Rig, pod: &str) -> Pass {
        eventually(&format!("{pod} is open"), || async { self.enter(rig, pod).await.is_ok() }).await;
        self.enter(rig, pod).await.unwrap()
    }

    async fn until_closed(&self, rig: &Rig, pod: &str) {
        let is_closed = || async { matches!(self.enter(rig, pod).await, Err(EnterError::Closed)) };
        eventually(&format!("{pod} is closed"), is_closed).await;
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.served.await.unwrap();
    }
}

async fn drained_event(rig: &Rig, pod: &str) -> Option<String> {
    let events = rig.store.last_events(100).await.unwrap();
    let mut of_pod = events.into_iter().filter(|event| event.object == pod && event.reason == "PodDrained");
    of_pod.next().map(|event| event.message)
}

async fn with_request(rig: &Rig, host: &Host, more: &str) -> (RunningWorker, Pass) {
    let worker = rig.worker();
    rig.push(&payload_with("p", "alpine", more));
    rig.until("p", Phase::Running).await;
    (worker, host.until_open(rig, "p").await)
}

#[tokio::test]
async fn a_pod_is_stopped_when_its_last_request_has_ended() {
    let Some(rig) = rig("a_pod_is_stopped_when_its_last_request_has_ended") else { return };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""drain":"60s""#).await;
    assert_eq!(pass.address(), IpAddr::from([127, 0, 0, 1]));
    rig.stop("p").await;
    host.until_closed(&rig, "p").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((rig.engine.running(), rig.has_phase("p", Phase::Stopping).await), (1, true));
    drop(pass);
    rig.until("p", Phase::Stopped).await;
    assert_eq!(rig.engine.running(), 0);
    let event = drained_event(&rig, "p").await.unwrap();
    assert!(event.contains("1 request") && event.contains("ended by themselves"), "{event}");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_healthy_again_is_open_again() {
    let Some(rig) = rig("a_pod_that_is_healthy_again_is_open_again") else { return };
    let host = Host::start(&rig).await;
    let worker = rig.worker();
    let check = r#""restart":"no","healthcheck":{"command":["check"],"interval":"100ms","retries":3}"#;
    rig.push(&payload_with("p", "unhealthy", check));
    rig.until_reason("p", "Unhealthy").await;
    drop(worker);
    let worker = rig.worker();
    host.until_closed(&rig, "p").await;
    rig.engine.set_exec_exit_code(&id("p"), Some(0));
    rig.until_reason("p", "").await;
    drop(host.until_open(&rig, "p").await);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_request_that_takes_longer_than_drain_is_cut_and_told() {
    let Some(rig) = rig("a_request_that_takes_longer_than_drain_is_cut_and_told") else { return };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""drain":"1s""#).await;
    let request = tokio::spawn(async move { pass.cut().await });
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    request.await.unwrap();
    let event = drained_event(&rig, "p").await.unwrap();
    assert!(event.contains("1 cut") && event.contains("1 s"), "{event}");
    worker.end().await.unwrap();
}

/// Without this signal a pod cannot end its WebSockets: they are already cut when SIGTERM comes.
#[tokio::test]
async fn a_pod_gets_its_drain_signal_when_its_gate_is_closed_and_something_is_in_flight() {
    let Some(rig) = rig("a_pod_gets_its_drain_signal_when_its_gate_is_closed_and_something_is_in_flight")
    else {
        return;
    };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""drain":"60s","drain_signal":"USR1""#).await;
    assert_eq!(rig.engine.signals(&id("p")), []);
    rig.stop("p").await;
    eventually("the signal was sent", || async { !rig.engine.signals(&id("p")).is_empty() }).await;
    host.until_closed(&rig, "p").await;
    assert_eq!(rig.engine.running(), 1, "it ends its connections itself");
    assert_eq!(rig.engine.signals(&id("p")).len(), 1);
    drop(pass);
    rig.until("p", Phase::Stopped).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn without_requests_in_flight_or_without_a_proxy_no_stop_waits() {
    let Some(rig) = rig("without_requests_in_flight_or_without_a_proxy_no_stop_waits") else { return };
    let worker = rig.worker();
    for pod in ["none", "idle"] {
        let host = if pod == "idle" { Some(Host::start(&rig).await) } else { None };
        rig.push(&payload_with(pod, "alpine", r#""drain":"1h""#));
        rig.until(pod, Phase::Running).await;
        if let Some(host) = &host {
            drop(host.until_open(&rig, pod).await);
        }
        let begun = Instant::now();
        rig.stop(pod).await;
        rig.until(pod, Phase::Stopped).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{pod}: {:?}", begun.elapsed());
        assert_eq!(drained_event(&rig, pod).await, None, "nothing to tell");
    }
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_proxy_that_dies_while_it_drains_holds_up_no_stop() {
    let Some(rig) = rig("a_proxy_that_dies_while_it_drains_holds_up_no_stop") else { return };
    let host = Host::start(&rig).await;
    let (worker, _pass) = with_request(&rig, &host, r#""drain":"1h""#).await;
    rig.stop("p").await;
    host.until_closed(&rig, "p").await;
    assert_eq!(rig.engine.running(), 1);
    host.end().await;
    rig.until("p", Phase::Stopped).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_proxy_that_hangs_holds_up_a_stop_for_its_drain_and_two_seconds() {
    let Some(rig) = rig("a_proxy_that_hangs_holds_up_a_stop_for_its_drain_and_two_seconds") else { return };
    let _hung = UnixListener::bind(socket(&rig)).unwrap();
    let worker = rig.worker();
    rig.push(&payload_with("p", "alpine", r#""drain":"1s""#));
    rig.until("p", Phase::Running).await;
    let begun = Instant::now();
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    let event = drained_event(&rig, "p").await.unwrap();
    assert!(event.contains("did not say within 3 s"), "{event}");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_dies_while_a_pod_drains_goes_on_in_its_next_session() {
    let Some(rig) = rig("a_worker_that_dies_while_a_pod_drains_goes_on_in_its_next_session") else { return };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""drain":"1h""#).await;
    rig.stop("p").await;
    host.until_closed(&rig, "p").await;
    drop(worker);
    assert_eq!(host.enter(&rig, "p").await.unwrap_err(), EnterError::Closed);
    let before = rig.incarnation().await;
    let worker = rig.worker();
    eventually("it has registered again", || async { rig.incarnation().await != before }).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.engine.running(), 1);
    assert_eq!(host.enter(&rig, "p").await.unwrap_err(), EnterError::Closed);
    drop(pass);
    rig.until("p", Phase::Stopped).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn containers_that_a_worker_finds_of_other_nodes_pods_have_let_go_before_they_are_stopped() {
    let Some(rig) = rig("containers_that_a_worker_finds_of_other_nodes_pods_have_let_go") else { return };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""drain":"1h""#).await;
    drop(worker);
    let _set: u64 = rig.redis.cli(&["HSET", "pod:p", "node", "other"]).await;
    let (key, assignment) = (id("p"), pass.pod().assignment.clone());
    let worker = rig.worker();
    let is_open = || async { host.gates.enter(&key, &assignment).is_ok() };
    eventually("the gate is closed", || async { !is_open().await }).await;
    let cut = tokio::time::timeout(Duration::from_secs(1), pass.cut()).await;
    assert!(cut.is_err() && rig.engine.running() == 1, "the request was cut, or its container stopped");
    drop(pass);
    eventually("it is removed", || async { rig.engine.running() == 0 }).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_is_shut_down_waits_for_no_drain() {
    let Some(rig) = rig("a_worker_that_is_shut_down_waits_for_no_drain") else { return };
    let host = Host::start(&rig).await;
    let (worker, _pass) = with_request(&rig, &host, r#""drain":"1h""#).await;
    rig.stop("p").await;
    host.until_closed(&rig, "p").await;
    let begun = Instant::now();
    worker.end().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(rig.engine.running(), 1);
}

#[tokio::test]
async fn a_restarted_proxy_and_a_restarted_worker_know_the_pods_again() {
    let Some(rig) = rig("a_restarted_proxy_and_a_restarted_worker_know_the_pods_again") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let host = Host::start(&rig).await;
    host.until_open(&rig, "p").await;
    host.end().await;
    let host = Host::start(&rig).await;
    let pass = host.enter(&rig, "p").await.unwrap();
    drop(worker);
    let worker = rig.worker();
    eventually("the next session has begun", || async {
        rig.store.last_events(10).await.unwrap().iter().filter(|e| e.reason == "NodeRestarted").count() == 1
    })
    .await;
    rig.push(&payload("q", "alpine"));
    rig.until("q", Phase::Running).await;
    host.until_open(&rig, "q").await;
    assert!(host.enter(&rig, "p").await.is_ok());
    let cut = tokio::time::timeout(Duration::from_millis(200), pass.cut()).await;
    assert!(cut.is_err(), "a restart of the worker cut a request");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_container_that_waits_for_its_restart_gets_nothing_and_is_another_after_it() {
    let Some(rig) = rig("a_container_that_waits_for_its_restart_gets_nothing") else { return };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""restart":"always""#).await;
    assert!(rig.engine.exit(&id("p"), 1));
    host.until_closed(&rig, "p").await;
    let again = host.until_open(&rig, "p").await;
    assert_eq!((pass.pod().start, again.pod().start), (0, 1));
    tokio::time::timeout(Duration::from_secs(5), pass.cut()).await.unwrap();
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_belongs_to_another_node_is_drained_unless_it_must_not_run_twice() {
    let Some(rig) = rig("a_pod_that_belongs_to_another_node_is_drained_unless") else { return };
    let host = Host::start(&rig).await;
    let worker = rig.worker();
    for (pod, more) in [("keep", r#""drain":"1h""#), ("stop", r#""drain":"1h","on_disconnect":"stop""#)] {
        rig.push(&payload_with(pod, "alpine", more));
        rig.until(pod, Phase::Running).await;
    }
    let keep = host.until_open(&rig, "keep").await;
    let stop = host.until_open(&rig, "stop").await;
    let cut = tokio::spawn(async move { stop.cut().await });
    for pod in ["keep", "stop"] {
        let _set: u64 = rig.redis.cli(&["HSET", &format!("pod:{pod}"), "node", "other"]).await;
    }
    cut.await.unwrap();
    eventually("the one that must not run twice is gone", || async { rig.engine.running() == 1 }).await;
    assert_eq!(rig.containers("keep").await.len(), 1);
    drop(keep);
    eventually("the other one is gone", || async { rig.engine.running() == 0 }).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn the_fence_closes_the_gate_and_cuts_before_another_node_may_start_the_pod() {
    let Some(mut rig) = rig("the_fence_closes_the_gate_and_cuts_before_another_node") else { return };
    // 2 of 9 s are kept free; half of the rest is for requests.
    rig.config.timing.dead_after = Duration::from_secs(10);
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, STOP).await;
    let (key, assignment) = (id("p"), rig.record("p").await.unwrap().assignment.unwrap());
    rig.redis.freeze();
    let is_closed = || async { matches!(host.gates.enter(&key, &assignment), Err(EnterError::Closed)) };
    eventually("the gate is closed", is_closed).await;
    assert_eq!(rig.engine.running(), 1);
    let begun = Instant::now();
    let request = tokio::spawn(async move { pass.cut().await });
    eventually("the fence has stopped it", || async { rig.engine.running() == 0 }).await;
    request.await.unwrap();
    assert!(begun.elapsed() > Duration::from_secs(2), "it had its time: {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(worker);
}

#[tokio::test]
async fn a_fence_without_time_closes_the_gate_while_it_stops() {
    let Some(mut rig) = rig("a_fence_without_time_closes_the_gate_while_it_stops") else { return };
    rig.config.timing.dead_after = Duration::from_secs(2);
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, STOP).await;
    let (key, assignment) = (id("p"), rig.record("p").await.unwrap().assignment.unwrap());
    rig.redis.freeze();
    eventually("the fence has stopped it", || async { rig.engine.running() == 0 }).await;
    tokio::time::timeout(Duration::from_secs(5), pass.cut()).await.unwrap();
    assert_eq!(host.gates.enter(&key, &assignment).unwrap_err(), EnterError::Closed);
    drop(worker);
}

#[tokio::test]
async fn a_stop_that_a_failover_has_lost_opens_the_gate_again() {
    let Some(rig) = rig("a_stop_that_a_failover_has_lost_opens_the_gate_again") else { return };
    let host = Host::start(&rig).await;
    let (worker, pass) = with_request(&rig, &host, r#""drain":"1h""#).await;
    rig.stop("p").await;
    host.until_closed(&rig, "p").await;
    let _removed: u64 = rig.redis.cli(&["SREM", "stop:w", "p"]).await;
    let _set: u64 = rig.redis.cli(&["HSET", "pod:p", "phase", "running"]).await;
    let _set: u64 = rig.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    host.until_open(&rig, "p").await;
    assert_eq!(rig.engine.running(), 1);
    assert!(rig.has_phase("p", Phase::Running).await);
    let cut = tokio::time::timeout(Duration::from_millis(200), pass.cut()).await;
    assert!(cut.is_err(), "a revoked stop cut a request");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn stop_pods_are_stopped_beside_keep_pods_that_still_answer_requests() {
    let Some(rig) = rig("stop_pods_are_stopped_beside_keep_pods_that_still_answer_requests") else { return };
    let host = Host::start(&rig).await;
    let containers = [OnDisconnect::Keep, OnDisconnect::Stop].map(|on_disconnect| {
        let name = format!("{on_disconnect:?}").to_lowercase();
        let identity = Identity { on_disconnect, ..identity("n", &name, &name) };
        Container::new(name, &identity, ContainerState::Running)
    });
    let passes = containers.each_ref().map(|container| {
        let (pod, assignment) = container.key();
        let address = IpAddr::from([127, 0, 0, 1]);
        let (start, service, replica, open, ready) = (1, None, 0, true, true);
        host.gates.set(LocalPod {
            pod,
            assignment,
            start,
            service,
            replica,
            address,
            open,
            ready,
            ended: false,
        });
        host.gates.enter(&container.pod, &container.assignment).unwrap()
    });
    let stopped = Mutex::new(Vec::new());
    let stop = |containers: Vec<Container>| {
        stopped.lock().extend(containers.into_iter().map(|container| container.handle));
        std::future::ready(Ok(())).boxed()
    };
    let (socket, containers) = (socket(&rig), containers.each_ref());
    let within = Duration::from_secs(60);
    let stopping = drain_and_stop(Some(&socket as &dyn ProxySocket), &containers, within, stop);
    let requests = async {
        let [keep, stop] = passes;
        stop.cut().await;
        assert_eq!(*stopped.lock(), ["stop"]);
        drop(stop);
        eventually("the gate is closed", || async { !keep.is_open() }).await;
        assert_eq!(*stopped.lock(), ["stop"]);
        drop(keep);
    };
    tokio::join!(stopping, requests).0.unwrap();
    assert_eq!(*stopped.lock(), ["stop", "keep"]);
}
