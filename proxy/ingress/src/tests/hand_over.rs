//! Replaces pods under load without a failure, which needs each of the safeguards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gate::fixtures::endpoint;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use model::network::endpoint::EndpointState;
use model::network::ingress::HttpProtocol;

use super::fixture::{Client, FakePod, Fixture, Pods, row, rule};
use super::{Ablation, ablate, ablation};
use crate::IngressConfig;
use crate::pod::connection::Pools;

const PODS_ANSWER_AFTER: Duration = Duration::from_millis(2);
const SIGNAL_TAKES: Duration = Duration::from_millis(5);
const CONNECTIONS: usize = 32;

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    failed: AtomicUsize,
    gone: AtomicUsize,
}

async fn send_without_pause(fixture: Arc<Fixture>, number: usize, counts: Arc<Counts>) {
    loop {
        let mut client = if number.is_multiple_of(4) {
            Client::connect_http2(fixture.address).await
        } else {
            Client::connect(fixture.address).await
        };
        loop {
            let is_post = number.is_multiple_of(2);
            let body = if is_post { vec![b'x'; 4096] } else { Vec::new() };
            let request = Request::builder()
                .method(if is_post { Method::POST } else { Method::GET })
                .uri("http://web.example/")
                .header("host", "web.example")
                .body(Full::from(body))
                .unwrap();
            let gone = counts.gone.load(Ordering::SeqCst);
            let answer = async {
                let response = client.send(request).await.ok()?;
                let is_ok = response.status() == StatusCode::OK;
                let body = response.into_body().collect().await.ok().filter(|_| is_ok)?.to_bytes();
                // A stopped pod must not answer.
                let pod = std::str::from_utf8(&body).ok()?.split(' ').next()?;
                pod.strip_prefix('p')?.parse().ok().filter(|pod: &usize| *pod >= gone)
            };
            counts.requests.fetch_add(1, Ordering::Relaxed);
            if answer.await.is_none() {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
}

/// The new pod has the same address. Every fourth old pod leaves its connections open. Returns the numbers of
/// requests and failures.
async fn hand_over(pods: Pods, config: IngressConfig, hand_overs: usize, requests: usize) -> (usize, usize) {
    let mut pod = FakePod::http1("p0", 0, PODS_ANSWER_AFTER).await;
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    let fixture = Arc::new(Fixture::start_with(pods, config, rules).await);
    if matches!(ablation(), Some(Ablation::GateNotLookedAt)) {
        fixture.gates.let_all_in();
    }
    fixture.set_only_pod("p0");
    let counts = Arc::new(Counts::default());
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|number| tokio::spawn(send_without_pause(fixture.clone(), number, counts.clone())))
        .collect();
    for number in 0..hand_overs {
        let due = requests * (number + 1) / (hand_overs + 1);
        while counts.requests.load(Ordering::Relaxed) < due {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (old, new) = (format!("p{number}"), format!("p{}", number + 1));
        if number.is_multiple_of(2) {
            // Every other time the ingress does not learn that the pod leaves.
            fixture.set_endpoints(vec![endpoint(&old, EndpointState::Leaving)]);
        }
        let leaving = row(&old);
        fixture.gates.close(&leaving.pod, &leaving.assignment);
        fixture.gates.drained(&leaving.pod, &leaving.assignment, Duration::from_secs(1)).await;
        counts.gone.store(number + 1, Ordering::SeqCst);
        // The worker's delay before the signal.
        tokio::time::sleep(SIGNAL_TAKES).await;
        let port = pod.port;
        if number % 4 == 3 {
            pod.leave().await;
        } else {
            pod.kill().await;
        }
        fixture.gates.remove(&leaving.assignment);
        pod = FakePod::http1(&new, port, PODS_ANSWER_AFTER).await;
        fixture.set_only_pod(&new);
    }
    while counts.requests.load(Ordering::Relaxed) < requests {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let failed = counts.failed.load(Ordering::Relaxed);
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    (counts.requests.load(Ordering::Relaxed), failed)
}

#[tokio::test]
async fn no_request_fails_while_the_only_pod_is_replaced_50_times() {
    let (requests, failed) = hand_over(Pods::OnThisHost, IngressConfig::default(), 50, 20_000).await;
    println!("{requests} requests through 50 hand-overs, {failed} failed");
    assert_eq!(failed, 0);
}

#[tokio::test]
async fn requests_fail_if_they_do_not_wait() {
    let config = IngressConfig { wait: Duration::ZERO, ..IngressConfig::default() };
    assert_ne!(hand_over(Pods::OnThisHost, config, 5, 2_000).await.1, 0);
}

#[tokio::test]
async fn requests_fail_if_the_gate_is_not_looked_at() {
    ablate(Ablation::GateNotLookedAt);
    assert_ne!(hand_over(Pods::OnThisHost, IngressConfig::default(), 5, 2_000).await.1, 0);
}

#[tokio::test]
async fn requests_fail_if_connections_belong_to_an_address() {
    ablate(Ablation::PoolPerAddress(Arc::new(Pools::of_address())));
    assert_ne!(hand_over(Pods::OnThisHost, IngressConfig::default(), 5, 2_000).await.1, 0);
}

#[tokio::test]
async fn no_request_fails_while_the_only_pod_of_another_host_is_replaced_50_times() {
    let (requests, failed) = hand_over(Pods::OnAnotherHost, IngressConfig::default(), 50, 20_000).await;
    println!("{requests} requests through 50 hand-overs on another host, {failed} failed");
    assert_eq!(failed, 0);
}

#[tokio::test]
async fn requests_fail_if_the_gate_of_another_host_is_not_looked_at() {
    ablate(Ablation::GateNotLookedAt);
    assert_ne!(hand_over(Pods::OnAnotherHost, IngressConfig::default(), 10, 4_000).await.1, 0);
}
