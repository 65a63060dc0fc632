//! Pods of this host that speak HTTP/2 and limit the requests on a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::network::ingress::HttpProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::fixture::{FakePod, Fixture, rule, text};
use crate::IngressConfig;
use crate::pod::stream_count::{MOST_BEGINNING, MOST_CONNECTIONS};

type AnyBody = BoxBody<Bytes, Infallible>;
type Held = (Response<Incoming>, tokio::sync::mpsc::Sender<Bytes>);

/// The ingress takes 100 requests at a time of one.
struct Client(http2::SendRequest<AnyBody>);

impl Client {
    async fn connect(fixture: &Fixture) -> Self {
        let stream = TcpStream::connect(fixture.address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// Its body ends when the sender is dropped.
    async fn post(&mut self) -> Held {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let pieces = futures_util::stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|piece| (Ok(Frame::data(piece)), receiver))
        });
        let begin = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"a")))]);
        let body = BodyExt::boxed(StreamBody::new(begin.chain(pieces)));
        let request = Request::post("http://web.example/").body(body).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), self.0.send_request(request)).await;
        (answer.expect("it is answered within 5 s").unwrap(), sender)
    }
}

/// Answers each request with its body.
async fn echo(
    request: Request<Incoming>,
) -> Result<Response<impl Body<Data = Bytes, Error = hyper::Error>>, Infallible> {
    Ok(Response::new(request.into_body()))
}

async fn pod_with_streams(most: u32) -> FakePod {
    FakePod::with(0, move |stream: TcpStream| async move {
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.max_concurrent_streams(most);
        let _ = server.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
    })
    .await
}

async fn start(pod: &FakePod, wait: Duration) -> Fixture {
    let config = IngressConfig { threads: 1, wait, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(pod.port, HttpProtocol::H2c)]).await;
    fixture.set_only_pod("p");
    fixture
}

async fn hold(fixture: &Fixture, requests: usize) -> Vec<Held> {
    let mut held = Vec::new();
    while held.len() < requests {
        let mut client = Client::connect(fixture).await;
        for _ in held.len()..requests.min(held.len() + 100) {
            held.push(client.post().await);
        }
    }
    held
}

#[tokio::test]
async fn a_request_beyond_those_that_a_pod_takes_on_a_connection_gets_another_connection() {
    let pod = pod_with_streams(100).await;
    let fixture = start(&pod, Duration::from_secs(10)).await;
    let streams = hold(&fixture, 100).await;
    assert_eq!(pod.open_connections(), 1);
    for _ in 0..10 {
        let (answer, sender) = Client::connect(&fixture).await.post().await;
        drop(sender);
        assert_eq!(text(answer).await, "a");
    }
    assert_eq!(pod.open_connections(), 2);
    for (answer, sender) in streams {
        drop(sender);
        assert_eq!(text(answer).await, "a");
    }
}

#[tokio::test]
async fn a_request_beyond_all_connections_to_a_pod_is_answered_with_503_until_another_one_ends() {
    let pod = pod_with_streams(1).await;
    let fixture = start(&pod, Duration::from_millis(300)).await;
    let mut streams = hold(&fixture, MOST_CONNECTIONS).await;
    let mut client = Client::connect(&fixture).await;
    let (answer, _) = client.post().await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(answer).await.starts_with("Pods are full: "));
    drop(streams.pop());
    let (answer, sender) = client.post().await;
    drop(sender);
    assert_eq!((answer.status(), text(answer).await.as_str()), (StatusCode::OK, "a"));
    assert_eq!(pod.open_connections(), MOST_CONNECTIONS);
}

/// gRPC servers may answer a stream before its client has sent all.
#[tokio::test]
async fn an_answered_request_counts_while_its_body_is_being_sent() {
    let is_first_answered = Arc::new(Notify::new());
    let answered = is_first_answered.clone();
    let pod = FakePod::with(0, move |mut stream: TcpStream| {
        let answered = answered.clone();
        async move {
            stream.read_exact(&mut [0; 24]).await.unwrap();
            // One stream at a time.
            stream.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]).await.unwrap();
            loop {
                let mut head = [0; 9];
                if stream.read_exact(&mut head).await.is_err() {
                    return;
                }
                let [high, middle, low, kind, ..] = head;
                let length = u32::from_be_bytes([0, high, middle, low]);
                stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
                if kind == 1 {
                    // 204 with the end of the stream, and no reset of the request.
                    let answer = [&[0, 0, 1, 1, 5], &head[5..], &[0x89]].concat();
                    stream.write_all(&answer).await.unwrap();
                    answered.notify_one();
                }
            }
        }
    })
    .await;
    let fixture = start(&pod, Duration::from_secs(10)).await;
    let mut client = Client::connect(&fixture).await;
    let first = client.post().await;
    is_first_answered.notified().await;
    let second = client.post().await;
    assert_eq!([first.0.status(), second.0.status()], [StatusCode::NO_CONTENT; 2]);
    assert_eq!(pod.open_connections(), 2);
}

#[tokio::test]
async fn requests_that_come_together_are_all_answered_however_few_a_connection_takes() {
    let pod = pod_with_streams(3).await;
    let fixture = start(&pod, Duration::from_secs(10)).await;
    let mut clients = Vec::new();
    for _ in 0..300 {
        clients.push(Client::connect(&fixture).await);
    }
    let answers = futures_util::future::join_all(clients.iter_mut().map(Client::post)).await;
    assert!(answers.iter().all(|(answer, _)| answer.status() == StatusCode::OK));
    assert!(pod.open_connections() < 150, "{}", pod.open_connections());
}

#[tokio::test]
async fn a_silent_pod_gets_some_connections_and_further_requests_503() {
    let pod = FakePod::with(0, async |stream: TcpStream| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let fixture = start(&pod, Duration::from_millis(300)).await;
    let mut requests = futures_util::stream::FuturesUnordered::new();
    for _ in 0..MOST_BEGINNING + 3 {
        let mut client = Client::connect(&fixture).await;
        requests.push(async move { client.post().await.0.status() });
    }
    for _ in 0..3 {
        assert_eq!(requests.next().await, Some(StatusCode::SERVICE_UNAVAILABLE));
    }
    assert_eq!(pod.open_connections(), MOST_BEGINNING);
}
