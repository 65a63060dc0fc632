//! HTTP/2 clients that send or read nothing, disappear, or request too much.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::network::ingress::HttpProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{FakePod, Fixture, Pods, eventually, get, row, rule, text};
use crate::IngressConfig;

type AnyBody = BoxBody<Bytes, Infallible>;

async fn connect(address: SocketAddr, window: u32) -> http2::SendRequest<AnyBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(method: &str, body: AnyBody) -> Request<AnyBody> {
    Request::builder().method(method).uri("http://web.example/").body(body).unwrap()
}

fn empty() -> AnyBody {
    Full::default().boxed()
}

fn unending() -> AnyBody {
    let begin = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"x")))]);
    BodyExt::boxed(StreamBody::new(begin.chain(futures_util::stream::pending())))
}

fn in_flight(fixture: &Fixture) -> u64 {
    let row = row("p");
    let count = fixture.gates.close(&row.pod, &row.assignment);
    fixture.gates.set(row);
    count
}

async fn start(pods: Pods, pod: &FakePod, config: IngressConfig, protocol: HttpProtocol) -> Fixture {
    let fixture = Fixture::start_with(pods, config, vec![rule(pod.port, protocol)]).await;
    fixture.set_only_pod("p");
    fixture
}

fn patient_for(idle: Duration) -> IngressConfig {
    IngressConfig { idle, ..IngressConfig::default() }
}

async fn an_upload_of_which_nothing_comes_is_reset_while_others_of_its_connection_go_on(pods: Pods) {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = patient_for(Duration::from_secs(2));
    let fixture = start(pods, &pod, config, HttpProtocol::Http).await;
    let mut client = connect(fixture.address, 65_535).await;
    let silent = (0..20).map(|_| client.send_request(request("POST", unending()))).collect::<Vec<_>>();
    let silent = tokio::spawn(futures_util::future::join_all(silent));
    eventually(async || in_flight(&fixture) == 20).await;
    let answered = async {
        loop {
            let response = client.send_request(request("GET", empty())).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            response.into_body().collect().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        answers = silent => assert!(answers.unwrap().iter().all(Result::is_err)),
        () = answered => {}
    }
    eventually(async || in_flight(&fixture) == 0).await;
    assert!(client.send_request(request("GET", empty())).await.is_ok(), "the connection goes on");
}

async fn an_answer_of_which_nothing_is_taken_in_is_reset_and_keeps_no_pod(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        while stream.write_all(&[b'x'; 16 * 1024]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    let config = patient_for(Duration::from_secs(4));
    let fixture = start(pods, &pod, config, HttpProtocol::Http).await;
    let (mut without_window, mut slow) =
        (connect(fixture.address, 0).await, connect(fixture.address, 65_535).await);
    let mut kept = Vec::new();
    for _ in 0..10 {
        kept.push(without_window.send_request(request("GET", empty())).await.unwrap());
    }
    let mut read = slow.send_request(request("GET", empty())).await.unwrap();
    assert_eq!(in_flight(&fixture), 11);
    let reading = async {
        loop {
            assert!(read.frame().await.unwrap().is_ok(), "one that reads slowly is not cut");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = eventually(async || in_flight(&fixture) == 1) => {}
        () = reading => {}
    }
    assert!(!without_window.is_closed(), "its connection is not cut");
}

async fn a_client_that_has_gone_without_a_word_keeps_no_request(pods: Pods) {
    let pod = FakePod::http1("p", 0, Duration::from_secs(3600)).await;
    let config = patient_for(Duration::from_secs(2));
    let fixture = start(pods, &pod, config, HttpProtocol::Http).await;
    let mut client = TcpStream::connect(fixture.address).await.unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // GET, http, / and the authority a.
    let headers = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x01, 0x01, b'a'];
    let bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &headers].concat();
    client.write_all(&bytes).await.unwrap();
    eventually(async || in_flight(&fixture) == 1).await;
    eventually(async || in_flight(&fixture) == 0).await;
}

#[tokio::test]
async fn an_idle_connection_ends_also_if_its_client_answers_pings() {
    let fixture = Fixture::start(patient_for(Duration::from_millis(500)), vec![]).await;
    let mut client = connect(fixture.address, 65_535).await;
    assert_eq!(client.send_request(request("GET", empty())).await.unwrap().status(), StatusCode::NOT_FOUND);
    eventually(async || client.is_closed()).await;
}

#[tokio::test]
async fn an_idle_client_is_told_by_goaway_that_its_connection_ends() {
    for answers_goaway in [true, false] {
        let fixture = Fixture::start(patient_for(Duration::from_millis(500)), vec![]).await;
        let mut client = TcpStream::connect(fixture.address).await.unwrap();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        client
            .write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat())
            .await
            .unwrap();
        let mut goaways = 0;
        let reading = async {
            let mut head = [0; 9];
            while client.read_exact(&mut head).await.is_ok() {
                let [high, middle, low, kind, flags, ..] = head;
                let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
                client.read_exact(&mut payload).await.unwrap();
                goaways += usize::from(kind == 7);
                // A ping after GOAWAY asks whether the client has read it.
                if (kind, flags) == (6, 0) && (goaways == 0 || answers_goaway) {
                    client.write_all(&[&[0, 0, 8, 6, 1, 0, 0, 0, 0], &payload[..]].concat()).await.unwrap();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), reading).await.expect("the connection ends");
        assert!(goaways > 0, "{answers_goaway}");
    }
}

#[tokio::test]
async fn requests_beside_each_other_count_as_connections_do() {
    let pod = FakePod::http1("p", 0, Duration::from_secs(2)).await;
    let config = IngressConfig { connections_per_client: 5, ..IngressConfig::default() };
    let fixture = start(Pods::OnThisHost, &pod, config, HttpProtocol::Http).await;
    let mut client = connect(fixture.address, 65_535).await;
    let requests = (0..20).map(|_| client.send_request(request("GET", empty())));
    let answers = futures_util::future::join_all(requests.collect::<Vec<_>>()).await;
    let statuses: Vec<StatusCode> = answers.into_iter().map(|answer| answer.unwrap().status()).collect();
    let count = |status| statuses.iter().filter(|own| **own == status).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::SERVICE_UNAVAILABLE)), (5, 15), "{statuses:?}");
    eventually(async || fixture.request(get("/")).await.status() == StatusCode::OK).await;
    assert_eq!(client.send_request(request("GET", empty())).await.unwrap().status(), StatusCode::OK);
}

/// gRPC streams wait for events.
async fn a_stream_to_a_pod_that_speaks_http2_may_be_silent(pods: Pods) {
    async fn echo(
        request: Request<Incoming>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = hyper::Error>>, Infallible> {
        Ok(Response::new(request.into_body()))
    }
    let pod = FakePod::with(0, async |stream: TcpStream| {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
    })
    .await;
    let idle = Duration::from_millis(1500);
    let fixture = start(pods, &pod, patient_for(idle), HttpProtocol::H2c).await;
    let mut client = connect(fixture.address, 65_535).await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let messages = futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|message| (Ok(Frame::data(message)), receiver))
    });
    let body = BodyExt::boxed(StreamBody::new(messages));
    let mut response = client.send_request(request("POST", body)).await.unwrap();
    for message in ["one", "two"] {
        sender.send(message.into()).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), message);
        tokio::time::sleep(idle * 2).await;
    }
}

/// Debian's curl sees no answer to an upload that is reset.
async fn a_refused_upload_is_answered_before_it_is_reset(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]).await;
        let answer = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno\n";
        let _ = stream.write_all(answer).await;
    })
    .await;
    let fixture = start(pods, &pod, IngressConfig::default(), HttpProtocol::Http).await;
    let mut client = connect(fixture.address, 65_535).await;
    for host in ["web.example", "no host"] {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let pieces = futures_util::stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|piece| (Ok(Frame::data(piece)), receiver))
        });
        let mut upload = request("POST", BodyExt::boxed(StreamBody::new(pieces)));
        if host == "no host" {
            upload.headers_mut().insert("host", "another.example".parse().unwrap());
        }
        let response = client.send_request(upload).await.unwrap();
        assert!(response.status().is_client_error());
        text(response).await;
        // More than the window: it is read, and not reset.
        for _ in 0..30 {
            sender.send(vec![b'x'; 100_000].into()).await.expect("the upload was reset");
        }
    }
}

super::wherever_the_pod_is! {
    an_upload_of_which_nothing_comes_is_reset_while_others_of_its_connection_go_on,
    an_answer_of_which_nothing_is_taken_in_is_reset_and_keeps_no_pod,
    a_client_that_has_gone_without_a_word_keeps_no_request,
    a_stream_to_a_pod_that_speaks_http2_may_be_silent,
    a_refused_upload_is_answered_before_it_is_reset,
}
