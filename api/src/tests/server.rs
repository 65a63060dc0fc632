//! The server on a real socket.

use std::net::SocketAddr;
use std::time::Duration;

use store::{LinkOptions, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{LIMIT, config};
use crate::{ApiError, Server};
use testkit::Redis;

struct RunningServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningServer {
    async fn start(redis: &Redis, settings: &[(&str, &str)]) -> Self {
        let server = server(redis, settings).await;
        let (address, shutdown) = (server.address(), CancellationToken::new());
        Self { address, task: tokio::spawn(server.run(shutdown.clone())), shutdown }
    }

    async fn end(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.expect("the server ends").unwrap();
    }
}

async fn server(redis: &Redis, settings: &[(&str, &str)]) -> Server {
    let config = config(&redis.url(), settings);
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    Server::bind(config, store).await.unwrap()
}

#[tokio::test]
async fn shutdown_ends_streams_and_closes_the_socket() {
    testkit::need_redis!();
    let redis = Redis::start().await;
    let server = RunningServer::start(&redis, &[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /event HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0_u8; 64];
    let count = tokio::time::timeout(LIMIT, stream.read(&mut head)).await.unwrap().unwrap();
    assert!(head[..count].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&head[..count]));
    server.shutdown.cancel();
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("the stream ends").unwrap();
    let address = server.address;
    server.end().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_address_in_use_is_an_error_with_advice() {
    testkit::need_redis!();
    let redis = Redis::start().await;
    let first = server(&redis, &[]).await;
    let listen = first.address().to_string();
    let config = config(&redis.url(), &[("KUBELEET_LISTEN", &listen)]);
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let error = Server::bind(config, store).await.err().expect("it is in use");
    assert!(matches!(error, ApiError::Bind { .. }));
    assert!(error.to_string().contains(&listen) && error.to_string().contains("KUBELEET_LISTEN"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_silent_connections_keep_nobody_out() {
    testkit::need_redis!();
    let redis = Redis::start().await;
    let server = RunningServer::start(&redis, &[("KUBELEET_MAX_CONNECTIONS", "100")]).await;
    // Each has a second file here, in the server's half.
    let sockets = file_limit().saturating_sub(300).min(5_000);
    let mut silent = Vec::new();
    for _ in 0..sockets {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let body = r#"{"name":"web","image":"nginx","replica":1}"#;
    let post = format!(
        "POST /service HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned();
    for (request, status) in [(health, "200"), (post, "201")] {
        let started = std::time::Instant::now();
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(started.elapsed() < Duration::from_secs(2), "{:?} with {sockets} sockets", started.elapsed());
    }
    drop(silent);
    server.end().await;
}

#[tokio::test]
async fn a_connection_that_sends_half_a_head_is_closed() {
    testkit::need_redis!();
    let redis = Redis::start().await;
    let server = RunningServer::start(&redis, &[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("it is closed").unwrap();
    server.end().await;
}

fn file_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or(1024)
}
