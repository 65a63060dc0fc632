use std::time::Duration;

use common::store::{LinkOptions, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::redis::Redis;
use super::{LIMIT, config};
use crate::{ApiError, Server};

async fn server(redis: &Redis) -> Server {
    let config = config(&redis.url(), &[]);
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    Server::bind(config, store).await.unwrap()
}

#[tokio::test]
async fn a_socket_that_ends_in_order() {
    let Some(redis) = Redis::start() else { return };
    let server = server(&redis).await;
    let address = server.address();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(server.run(shutdown.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /event HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0_u8; 64];
    let count = tokio::time::timeout(LIMIT, stream.read(&mut head)).await.unwrap().unwrap();
    assert!(head[..count].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&head[..count]));
    shutdown.cancel();
    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("the stream ends").unwrap();
    tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .expect("and the server too")
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_address_is_taken_once() {
    let Some(redis) = Redis::start() else { return };
    let first = server(&redis).await;
    let listen = first.address().to_string();
    let config = config(&redis.url(), &[("KUBELEET_LISTEN", &listen)]);
    let store = Store::new(config.redis.clone(), LinkOptions::default());
    let error = Server::bind(config, store).await.err().expect("it is taken");
    assert!(matches!(error, ApiError::Bind { .. }));
    assert!(error.to_string().contains(&listen) && error.to_string().contains("KUBELEET_LISTEN"), "{error}");
}
