//! Clients that disconnect, read nothing, or are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::network::ingress::HttpProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{Client, FakePod, Fixture, Pods, eventually, get, row, rule};
use crate::IngressConfig;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n";
const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

async fn before(pod: &FakePod, pods: Pods, config: IngressConfig) -> Fixture {
    let fixture = Fixture::start_with(pods, config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    fixture
}

fn in_flight(fixture: &Fixture) -> u64 {
    let row = row("p");
    let count = fixture.gates.close(&row.pod, &row.assignment);
    fixture.gates.set(row);
    count
}

async fn connect(fixture: &Fixture, bytes: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(fixture.address).await.unwrap();
    client.write_all(bytes).await.unwrap();
    client
}

async fn the_pod_learns_that_the_client_has_gone(pods: Pods) {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let pod = FakePod::with(0, move |mut stream: TcpStream| {
        let count = count.clone();
        async move {
            let mut bytes = [0; 1024];
            while let Ok(1..) = stream.read(&mut bytes).await {}
            count.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let fixture = before(&pod, pods, IngressConfig::default()).await;
    let clients = [connect(&fixture, REQUEST).await, connect(&fixture, REQUEST).await];
    eventually(async || in_flight(&fixture) == 2).await;
    drop(clients);
    eventually(async || in_flight(&fixture) == 0 && ended.load(Ordering::SeqCst) == 2).await;
}

async fn a_client_that_reads_nothing_is_cut_and_one_that_reads_slowly_is_not(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        while stream.write_all(&[b'x'; 16 * 1024]).await.is_ok() {}
    })
    .await;
    let config = IngressConfig { idle: Duration::from_secs(1), ..IngressConfig::default() };
    let fixture = before(&pod, pods, config).await;
    let silent = connect(&fixture, REQUEST).await;
    let mut slow = connect(&fixture, REQUEST).await;
    eventually(async || in_flight(&fixture) == 2).await;
    let mut bytes = vec![0; 256 * 1024];
    let reading = async {
        loop {
            assert!(slow.read(&mut bytes).await.unwrap() > 0);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = eventually(async || in_flight(&fixture) == 1) => {}
        () = reading => {}
    }
    drop(silent);
}

#[tokio::test]
async fn a_client_has_a_limited_number_of_connections() {
    let config = IngressConfig { connections_per_client: 2, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![]).await;
    let mut first = Client::connect(fixture.address).await;
    let mut second = Client::connect(fixture.address).await;
    assert!(first.send(get("/")).await.is_ok());
    assert!(second.send(get("/")).await.is_ok());
    assert!(Client::connect(fixture.address).await.send(get("/")).await.is_err());
    drop(first);
    eventually(async || Client::connect(fixture.address).await.send(get("/")).await.is_ok()).await;
}

#[tokio::test]
async fn a_proxy_before_this_one_has_as_many_connections_as_it_needs() {
    let trusted = vec!["127.0.0.0/8".parse().unwrap()];
    let config = IngressConfig { connections_per_client: 2, trusted, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![]).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(fixture.address).await;
        assert!(client.send(get("/")).await.is_ok());
        clients.push(client);
    }
}

#[tokio::test]
async fn an_upgraded_connection_counts_until_it_has_ended() {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]).await;
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let _ = stream.write_all(answer).await;
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let config = IngressConfig { connections: 1, ..IngressConfig::default() };
    let fixture = before(&pod, Pods::OnThisHost, config).await;
    let mut upgraded = connect(&fixture, UPGRADE).await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(upgraded.read_u8().await.unwrap());
    }
    for _ in 0..3 {
        upgraded.write_all(b"x").await.unwrap();
        assert_eq!(upgraded.read_u8().await.unwrap(), b'x');
        assert!(Client::connect(fixture.address).await.send(get("/")).await.is_err());
    }
    drop(upgraded);
    let is_taken = async || {
        let mut client = TcpStream::connect(fixture.address).await.unwrap();
        let _ = client.write_all(UPGRADE).await;
        client.read_u8().await.is_ok()
    };
    eventually(is_taken).await;
}

super::wherever_the_pod_is! {
    the_pod_learns_that_the_client_has_gone,
    a_client_that_reads_nothing_is_cut_and_one_that_reads_slowly_is_not,
}
