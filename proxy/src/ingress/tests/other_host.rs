//! What can go wrong between the ingress of one host and the pods of another.

use std::time::{Duration, Instant};

use common::endpoint::{Endpoint, EndpointState};
use common::ids::NodeName;
use common::ingress::HttpProtocol;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use tokio::net::TcpListener;

use super::fixture::{FakePod, Fixture, Pods, endpoint, get, row, rule, text};
use crate::ingress::IngressConfig;
use crate::tunnel::{Peer, ProxyKey};

async fn before_another_host(pod: &FakePod) -> Fixture {
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    Fixture::start_with(Pods::OnAnotherHost, IngressConfig::default(), rules).await
}

fn post(body: Vec<u8>) -> Request<Full<bytes::Bytes>> {
    Request::post("/").header("host", "web.example").body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn an_answered_request_has_left_the_gate_of_the_other_host() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    fixture.set_only_pod("p");
    let response = fixture.request(post(vec![b'x'; 1_000_000])).await;
    assert!(text(response).await.starts_with("p 1000000 POST /"));
    let row = row("p");
    fixture.gates.close(&row.pod, &row.assignment);
    let drained = fixture.gates.drained(&row.pod, &row.assignment, Duration::from_secs(10)).await;
    assert_eq!(drained.unwrap().cut, 0);
}

#[tokio::test]
async fn what_the_gate_of_the_other_host_refuses_is_sent_to_another_pod_also_a_post() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    for name in ["a", "b"] {
        fixture.gates.set(row(name));
    }
    fixture.gates.close(&row("a").pod, &row("a").assignment);
    // The third is unknown there.
    fixture.set_endpoints(["a", "b", "c"].map(|name| endpoint(name, EndpointState::Ready)).into());
    for _ in 0..50 {
        assert_eq!(fixture.request(post(vec![b'x'; 100])).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn pods_behind_a_dead_or_a_false_proxy_get_nothing_and_others_answer() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = before_another_host(&pod).await;
    fixture.gates.set(row("a"));
    fixture.gates.set(row("b"));
    let near = endpoint("a", EndpointState::Ready);
    let far = Endpoint { node: NodeName::new("worker2").unwrap(), ..endpoint("b", EndpointState::Ready) };
    let real = fixture.peers.of_node(&near.node).unwrap();
    let nothing_listens = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let dead = Peer { address: nothing_listens, ..real };
    let false_key = Peer { fingerprint: ProxyKey::generate().unwrap().fingerprint(), ..real };
    for wrong in [dead, false_key] {
        fixture.peers.insert(far.node.clone(), wrong);
        fixture.set_endpoints(vec![near.clone(), far.clone()]);
        for _ in 0..20 {
            assert_eq!(fixture.request(post(vec![b'x'; 100])).await.status(), StatusCode::OK);
        }
    }
    assert_eq!(fixture.gates.close(&row("b").pod, &row("b").assignment), 0, "it got something");
}

#[tokio::test]
async fn a_silent_proxy_holds_a_request_up_once_and_not_for_each_of_its_pods() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = IngressConfig { wait: Duration::from_secs(1), ..IngressConfig::default() };
    let connect_within = config.connect_within;
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    let fixture = Fixture::start_with(Pods::OnAnotherHost, config, rules).await;
    // Accepts connections, and never speaks.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = NodeName::new("worker2").unwrap();
    let real = fixture.peers.of_node(&endpoint("a", EndpointState::Ready).node).unwrap();
    fixture.peers.insert(node.clone(), Peer { address: silent.local_addr().unwrap(), ..real });
    let far = ["b", "c", "d", "e", "f", "g", "h", "i"]
        .map(|name| Endpoint { node: node.clone(), ..endpoint(name, EndpointState::Ready) });
    fixture.set_endpoints(far.into());
    let begun = Instant::now();
    assert_eq!(fixture.request(get("/")).await.status(), StatusCode::BAD_GATEWAY);
    assert!(begun.elapsed() < connect_within * 2, "{:?}", begun.elapsed());
}
