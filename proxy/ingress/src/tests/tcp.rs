//! TCP ingress.

use std::net::Ipv4Addr;
use std::time::Duration;

use model::network::ingress::{IngressRule, TcpRule};
use testkit::ports::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{FakePod, Fixture, Pods, eventually, row};
use crate::IngressConfig;

async fn reverse_pod() -> FakePod {
    FakePod::with(0, async |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        bytes.reverse();
        let _ = stream.write_all(&bytes).await;
    })
    .await
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await
}

async fn a_connection_is_passed_on_and_each_side_can_end_alone(pods: Pods) {
    let (pod, port) = (reverse_pod().await, free_port());
    let rule = IngressRule::Tcp(TcpRule { tcp: port, port: pod.port });
    let fixture = Fixture::start_with(pods, IngressConfig::default(), vec![rule]).await;
    eventually(async || connect(port).await.is_ok()).await;
    let mut client = connect(port).await.unwrap();
    client.write_all(b"abc").await.unwrap();
    client.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    fixture.set_only_pod("p");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "cba");
}

async fn a_connection_is_in_flight_until_it_ends_and_is_cut_by_the_drain(pods: Pods) {
    let (pod, port) = (reverse_pod().await, free_port());
    let rule = IngressRule::Tcp(TcpRule { tcp: port, port: pod.port });
    let fixture = Fixture::start_with(pods, IngressConfig::default(), vec![rule]).await;
    fixture.set_only_pod("p");
    eventually(async || connect(port).await.is_ok()).await;
    let mut client = connect(port).await.unwrap();
    client.write_all(b"abc").await.unwrap();
    let row = row("p");
    let in_flight = || fixture.gates.close(&row.pod, &row.assignment);
    // The gate stays open until the connections have arrived.
    eventually(async || {
        let count = in_flight();
        if count == 0 {
            fixture.gates.set(row.clone());
        }
        count == 1
    })
    .await;
    assert_eq!(fixture.gates.drained(&row.pod, &row.assignment, Duration::ZERO).await.unwrap().cut, 1);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn ports_open_and_close_as_rules_come_and_go() {
    let (pod, port) = (reverse_pod().await, free_port());
    let fixture = Fixture::start(IngressConfig::default(), vec![]).await;
    assert!(connect(port).await.is_err());
    fixture.set_rules(vec![IngressRule::Tcp(TcpRule { tcp: port, port: pod.port })]);
    eventually(async || connect(port).await.is_ok()).await;
    fixture.set_rules(vec![]);
    eventually(async || connect(port).await.is_err()).await;
}

#[tokio::test]
async fn a_client_has_a_limited_number_of_connections_to_a_tcp_port_too() {
    let (pod, port) = (reverse_pod().await, free_port());
    let rule = IngressRule::Tcp(TcpRule { tcp: port, port: pod.port });
    let config = IngressConfig { connections_per_client: 2, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule]).await;
    fixture.set_only_pod("p");
    let is_taken = async || {
        let Ok(mut client) = connect(port).await else { return false };
        let _ = client.write_all(b"ab").await;
        let _ = client.shutdown().await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.is_ok() && answer == "ba"
    };
    eventually(is_taken).await;
    let clients = [connect(port).await.unwrap(), connect(port).await.unwrap()];
    assert!(!is_taken().await);
    drop(clients);
    eventually(is_taken).await;
}

#[tokio::test]
async fn the_port_of_the_ingress_itself_is_left_to_http() {
    let (pod, own, other) = (reverse_pod().await, free_port(), free_port());
    let config = IngressConfig { listen: (Ipv4Addr::LOCALHOST, own).into(), ..IngressConfig::default() };
    let rules = [own, other].map(|port| IngressRule::Tcp(TcpRule { tcp: port, port: pod.port }));
    let _fixture = Fixture::start(config, rules.into()).await;
    eventually(async || connect(other).await.is_ok()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(connect(own).await.is_err());
}

#[tokio::test]
async fn a_port_that_another_program_has_keeps_no_other_from_being_closed_again() {
    let pod = reverse_pod().await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let taken = taken.local_addr().unwrap().port();
    let rules = |ports: &[u16]| -> Vec<IngressRule> {
        ports.iter().map(|port| IngressRule::Tcp(TcpRule { tcp: *port, port: pod.port })).collect()
    };
    let free: Vec<u16> = (0..8).map(|_| free_port()).collect();
    let fixture = Fixture::start(IngressConfig::default(), rules(&[&[taken], &free[..]].concat())).await;
    for port in &free {
        eventually(async || connect(*port).await.is_ok()).await;
    }
    fixture.set_rules(rules(&[taken]));
    for port in free {
        eventually(async || connect(port).await.is_err()).await;
    }
}

super::wherever_the_pod_is! {
    a_connection_is_passed_on_and_each_side_can_end_alone,
    a_connection_is_in_flight_until_it_ends_and_is_cut_by_the_drain,
}
