//! Single HTTP requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use gate::fixtures::endpoint;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::network::endpoint::EndpointState;
use model::network::ingress::{HttpProtocol, HttpRule, IngressRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{Client, FakePod, Fixture, Pods, eventually, get, row, rule, text};
use crate::IngressConfig;

async fn fixture_with(pod: &FakePod) -> Fixture {
    fixture_of(Pods::OnThisHost, pod).await
}

async fn fixture_of(pods: Pods, pod: &FakePod) -> Fixture {
    let rules = vec![rule(pod.port, HttpProtocol::Http)];
    let fixture = Fixture::start_with(pods, IngressConfig::default(), rules).await;
    fixture.set_only_pod("p");
    fixture
}

async fn a_request_reaches_the_pod_with_its_origin_and_without_hop_by_hop_headers(pods: Pods) {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = fixture_of(pods, &pod).await;
    let request = Request::get("/a?b=c")
        .header("host", "web.example")
        .header("connection", "x-own")
        .header("x-own", "1")
        .header("x-forwarded-for", "6.6.6.6")
        .body(Full::default())
        .unwrap();
    let response = fixture.request(request).await;
    assert_eq!(response.status(), StatusCode::OK);
    let seen = text(response).await;
    assert!(seen.starts_with("p 0 GET /a?b=c"), "{seen}");
    assert!(seen.contains(r#""host": "web.example""#), "{seen}");
    assert!(seen.contains(r#""x-forwarded-for": "127.0.0.1""#), "{seen}");
    assert!(seen.contains("x-request-id") && !seen.contains("x-own"), "{seen}");
}

async fn a_connection_goes_on_after_an_upload_in_chunks(pods: Pods) {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = fixture_of(pods, &pod).await;
    let upload = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let answers = fixture.raw(format!("{upload}{upload}GET /b HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 3, "{answers}");
    assert!(!answers.contains("connection: close"), "{answers}");
}

#[tokio::test]
async fn what_the_proxy_cannot_answer_is_explained_in_text_or_json() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = IngressConfig { wait: Duration::from_millis(50), ..IngressConfig::default() };
    let rule = |path: &str, port| {
        let (host, path) = ("web.example".to_owned(), path.to_owned());
        IngressRule::Http(HttpRule {
            host,
            path,
            port,
            protocol: HttpProtocol::Http,
            tls: None,
            ..HttpRule::default()
        })
    };
    let fixture = Fixture::start(config, vec![rule("/a", pod.port)]).await;

    let response = fixture.request(get("/b")).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(text(response).await.contains(r#"host "web.example" and path "/b""#));

    let response = fixture.request(get("/a/../b")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);

    let mut request = get("/a");
    request.headers_mut().insert("accept", "application/json".parse().unwrap());
    let response = fixture.request(request).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(problem["type"], "no-ready-pod");
    assert_eq!(problem["detail"], "Service web has no ready pod.");

    fixture.set_only_pod("p");
    assert_eq!(fixture.request(get("/a")).await.status(), StatusCode::OK);
    pod.kill().await;
    let response = fixture.request(get("/a")).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(text(response).await.contains("No pod of service web accepts connections"));
}

#[tokio::test]
async fn a_request_waits_for_a_pod_that_becomes_ready() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = Fixture::start(IngressConfig::default(), vec![rule(pod.port, HttpProtocol::Http)]).await;
    let waiting = fixture.request(get("/"));
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
    fixture.set_endpoints(vec![endpoint("p", EndpointState::Ready)]);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
    fixture.gates.set(row("p"));
    assert_eq!(waiting.await.status(), StatusCode::OK);
}

async fn a_request_counts_at_the_gate_until_its_answer_has_ended_and_is_cut_by_the_drain(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
        std::future::pending::<()>().await;
    })
    .await;
    let fixture = fixture_of(pods, &pod).await;
    let mut response = fixture.request(get("/")).await;
    assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    let row = row("p");
    assert_eq!(fixture.gates.close(&row.pod, &row.assignment), 1);
    let drained = fixture.gates.drained(&row.pod, &row.assignment, Duration::from_millis(50)).await;
    assert_eq!(drained.unwrap().cut, 1);
    assert!(response.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn a_request_on_a_connection_of_an_earlier_gate_is_cut_by_its_own() {
    let second = Arc::new(AtomicUsize::new(0));
    let seen = second.clone();
    let pod = FakePod::with(0, move |mut stream: TcpStream| {
        let seen = seen.clone();
        async move {
            let mut bytes = [0; 1024];
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            let length = stream.read(&mut bytes).await.unwrap();
            seen.store(length, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
    })
    .await;
    let fixture = fixture_with(&pod).await;
    let mut client = Client::connect(fixture.address).await;
    assert_eq!(client.send(get("/")).await.unwrap().status(), StatusCode::OK);
    let row = row("p");
    fixture.gates.forget(&row.assignment);
    fixture.gates.set(row.clone());
    // By now the pod counts as keeping its connections.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let post = Request::post("/").header("host", "web.example").body(Full::from("x")).unwrap();
    let request = tokio::spawn(async move { client.send(post).await.unwrap().status() });
    eventually(async || second.load(Ordering::Relaxed) > 0).await;
    assert_eq!(fixture.gates.close(&row.pod, &row.assignment), 1);
    let drained = fixture.gates.drained(&row.pod, &row.assignment, Duration::from_millis(50)).await;
    assert_eq!(drained.unwrap().cut, 1);
    assert_eq!(request.await.unwrap(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn an_unanswered_request_is_sent_again_only_if_that_is_safe() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let silent = FakePod::with(0, move |mut stream: TcpStream| {
        let counter = counter.clone();
        async move {
            let mut bytes = [0; 1024];
            let _ = stream.read(&mut bytes).await;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let fixture = fixture_with(&silent).await;
    assert_eq!(fixture.request(get("/")).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(seen.swap(0, Ordering::SeqCst), 3);
    let post = Request::post("/").header("host", "a").body(Full::from("x")).unwrap();
    assert_eq!(fixture.request(post).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(seen.swap(0, Ordering::SeqCst), 1);
}

async fn a_request_that_is_cut_is_sent_again_if_that_is_safe(pods: Pods) {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    let pod = FakePod::with(0, move |mut stream: TcpStream| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let _ = stream.read(&mut [0; 1024]).await;
            if is_first {
                std::future::pending::<()>().await;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let fixture = fixture_of(pods, &pod).await;
    let replacing = async {
        eventually(async || accepted.load(Ordering::SeqCst) > 0).await;
        let row = row("p");
        assert_eq!(fixture.gates.close(&row.pod, &row.assignment), 1);
        let drained = fixture.gates.drained(&row.pod, &row.assignment, Duration::ZERO).await;
        assert_eq!(drained.unwrap().cut, 1);
        fixture.set_only_pod("q");
    };
    let (response, ()) = tokio::join!(fixture.request(get("/")), replacing);
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_whose_pod_dies_late_still_waits_for_the_next_one() {
    const WAIT: Duration = Duration::from_millis(500);
    let has_begun = Arc::new(AtomicBool::new(false));
    let has_first = has_begun.clone();
    let pod = FakePod::with(0, move |mut stream: TcpStream| {
        let is_first = !has_first.swap(true, Ordering::SeqCst);
        async move {
            let _ = stream.read(&mut [0; 1024]).await;
            if is_first {
                tokio::time::sleep(2 * WAIT).await;
            } else {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let config = IngressConfig { wait: WAIT, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let replacing = async {
        eventually(async || has_begun.load(Ordering::SeqCst)).await;
        let row = row("p");
        fixture.gates.close(&row.pod, &row.assignment);
        fixture.gates.drained(&row.pod, &row.assignment, 10 * WAIT).await;
        tokio::time::sleep(WAIT / 5).await;
        fixture.set_only_pod("q");
    };
    let (response, ()) = tokio::join!(fixture.request(get("/")), replacing);
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_failing_pod_is_set_aside_while_another_is_well() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = fixture_with(&pod).await;
    let endpoints = ["p", "q"].map(|name| endpoint(name, EndpointState::Ready));
    fixture.gates.set(row("q"));
    fixture.set_endpoints(endpoints.into());
    // Nothing listens at the address of `q`, so it refuses and is then skipped.
    let mut gone = row("q");
    gone.address = "127.0.0.77".parse().unwrap();
    fixture.gates.set(gone);
    for _ in 0..200 {
        assert_eq!(fixture.request(get("/")).await.status(), StatusCode::OK);
    }
}

async fn nothing_passes_before_the_pod_has_agreed_to_upgrade_and_everything_after(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        // Bytes sent too early would have arrived by now.
        let early = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
        assert!(early.is_err());
        assert!(String::from_utf8(head).unwrap().to_lowercase().contains("upgrade: websocket"));
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello";
        stream.write_all(answer).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let fixture = fixture_of(pods, &pod).await;
    let mut client = TcpStream::connect(fixture.address).await.unwrap();
    let head = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(head).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client.write_all(&bytes[..10]).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(client.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    let mut hello = [0; 5];
    client.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    let row = row("p");
    let (mut read, mut write) = client.into_split();
    let rest = bytes[10..].to_vec();
    let sending = tokio::spawn(async move {
        write.write_all(&rest).await.unwrap();
        write
    });
    let mut echoed = vec![0; bytes.len()];
    read.read_exact(&mut echoed).await.unwrap();
    assert!(echoed == bytes);
    let _write = sending.await.unwrap();
    assert_eq!(fixture.gates.close(&row.pod, &row.assignment), 1);
    assert_eq!(fixture.gates.drained(&row.pod, &row.assignment, Duration::ZERO).await.unwrap().cut, 1);
    assert_eq!(read.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

async fn a_refused_upgrade_leaves_the_connection_to_further_requests(pods: Pods) {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = fixture_of(pods, &pod).await;
    let upgrade = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut client = TcpStream::connect(fixture.address).await.unwrap();
    client.write_all(upgrade.as_bytes()).await.unwrap();
    let mut bytes = vec![0; 4096];
    let length = client.read(&mut bytes).await.unwrap();
    assert!(bytes[..length].starts_with(b"HTTP/1.1 200"));
    client.write_all(b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("GET /next"), "{rest}");
}

async fn grpc_streams_both_ways_and_its_trailers_arrive(pods: Pods) {
    async fn grpc(
        request: Request<Incoming>,
    ) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = hyper::Error>>, Infallible> {
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.uri().authority().unwrap(), "web.example");
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let end = futures_util::stream::once(async { Ok(Frame::trailers(trailers)) });
        let echo = request.into_body().into_data_stream().map(|data| data.map(Frame::data));
        Ok(Response::new(StreamBody::new(echo.chain(end))))
    }
    let pod = FakePod::with(0, async |stream: TcpStream| {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service_fn(grpc)).await;
    })
    .await;
    let fixture =
        Fixture::start_with(pods, IngressConfig::default(), vec![rule(pod.port, HttpProtocol::H2c)]).await;
    fixture.set_only_pod("p");
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, hyper::Error>>(1);
    let messages = futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|frame| (frame, receiver))
    });
    let request = Request::post("http://web.example/echo").header("te", "trailers");
    let request = request.body(StreamBody::new(Box::pin(messages))).unwrap();
    let mut response = client.send_request(request).await.unwrap();
    for message in ["one", "two", "three"] {
        sender.send(Ok(Frame::data(message.into()))).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), message);
    }
    drop(sender);
    let frame = response.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn clients_that_take_too_long_are_cut_and_long_answers_are_not() {
    let pod = FakePod::http1("p", 0, Duration::from_millis(700)).await;
    let (head, idle) = (Duration::from_millis(200), Duration::from_millis(400));
    let config = IngressConfig { head_within: head, idle, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let mut slow = TcpStream::connect(fixture.address).await.unwrap();
    let begun = Instant::now();
    let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX: yyyyyyyyyyyyyyyyyyyyyyyy".chunks(1);
    for byte in bytes.by_ref() {
        if slow.write_all(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(bytes.next().is_some() || slow.read(&mut [0; 1]).await.unwrap_or(0) == 0);
    assert!(begun.elapsed() < Duration::from_secs(5));
    // The pod takes longer than a client may be silent; then the connection is idle.
    let mut patient = TcpStream::connect(fixture.address).await.unwrap();
    patient.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    patient.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_client_that_takes_too_long_for_a_head_by_http2_is_cut_and_one_with_a_long_body_is_not() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = IngressConfig { head_within: Duration::from_millis(300), ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let pieces = futures_util::stream::iter(0..20).then(async |_| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
    });
    let request = Request::post("http://web.example/").body(StreamBody::new(Box::pin(pieces))).unwrap();
    let answer = tokio::spawn(client.send_request(request));
    // Incomplete settings, and then a request's head in single bytes.
    let mut slow = TcpStream::connect(fixture.address).await.unwrap();
    let (settings, headers) = ([0, 0, 0, 4, 0, 0, 0, 0, 0], [0, 0, 100, 1, 4, 0, 0, 0, 1]);
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &headers].concat();
    slow.write_all(&begin).await.unwrap();
    let begun = Instant::now();
    let mut sent = 0;
    while slow.write_all(&[0x82]).await.is_ok() {
        sent += 1;
        assert!(sent < 90, "it is not cut");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(text(answer.await.unwrap().unwrap()).await.starts_with("p 20 "));
}

#[tokio::test]
async fn connections_to_a_pod_that_no_request_uses_are_ended() {
    let pod = FakePod::http1("p", 0, Duration::from_millis(50)).await;
    let fixture = fixture_with(&pod).await;
    let requests = (0..20).map(|_| async { text(fixture.request(get("/")).await).await });
    futures_util::future::join_all(requests).await;
    assert!(pod.open_connections() > 1);
    eventually(async || pod.open_connections() == 0).await;
}

#[tokio::test]
async fn heads_that_are_too_long_are_refused() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = fixture_with(&pod).await;
    for (headers, expected) in [
        ("X: y\r\n".repeat(900), "HTTP/1.1 200"),
        ("X: y\r\n".repeat(1001), "HTTP/1.1 431"),
        (format!("X: {}\r\n", "y".repeat(60_000)), "HTTP/1.1 200"),
        (format!("X: {}\r\n", "y".repeat(70_000)), "HTTP/1.1 431"),
    ] {
        let answer = fixture.raw(format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()).await;
        assert!(answer.starts_with(expected), "{expected}: {}", answer.lines().next().unwrap_or_default());
        let explains =
            answer.contains("Request Header Fields Too Large: The head of the request has more than");
        assert_eq!(explains, expected.ends_with("431"), "{answer}");
    }
}

super::wherever_the_pod_is! {
    a_request_that_is_cut_is_sent_again_if_that_is_safe,
    a_request_reaches_the_pod_with_its_origin_and_without_hop_by_hop_headers,
    a_connection_goes_on_after_an_upload_in_chunks,
    a_request_counts_at_the_gate_until_its_answer_has_ended_and_is_cut_by_the_drain,
    nothing_passes_before_the_pod_has_agreed_to_upgrade_and_everything_after,
    a_refused_upgrade_leaves_the_connection_to_further_requests,
    grpc_streams_both_ways_and_its_trailers_arrive,
}
