//! Answers of pods and of the proxy, as clients see them.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::network::ingress::HttpProtocol;
use model::spec::Seconds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{Client, FakePod, Fixture, Pods, get, rule, rule_with, text};
use crate::IngressConfig;

async fn pod_that_says(answer: impl Into<Vec<u8>>) -> FakePod {
    let answer = answer.into();
    FakePod::with(0, move |mut stream: TcpStream| {
        let answer = answer.clone();
        async move {
            let _ = stream.read(&mut [0; 64 * 1024]).await;
            let _ = stream.write_all(&answer).await;
        }
    })
    .await
}

async fn fixture_of(pods: Pods, pod: &FakePod, protocol: HttpProtocol) -> Fixture {
    let rules = vec![rule(pod.port, protocol)];
    let fixture = Fixture::start_with(pods, IngressConfig::default(), rules).await;
    fixture.set_only_pod("p");
    fixture
}

async fn an_answer_that_breaks_off_has_its_head_and_what_came_of_it(pods: Pods) {
    let pod = pod_that_says("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n123456789").await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    for method in ["GET", "POST"] {
        for _ in 0..50 {
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            let mut stream = TcpStream::connect(fixture.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("123456789"), "{answer:?}");
        }
    }
    for _ in 0..20 {
        let mut client = Client::connect_http2(fixture.address).await;
        let request = Request::get("http://web.example/").body(Full::default()).unwrap();
        let mut response = client.send(request).await.expect("its head comes first");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "123456789");
        assert!(response.frame().await.unwrap().is_err());
    }
}

async fn a_pod_of_http_1_0_is_answered_from_by_http_1_1_on_a_connection_that_stays(pods: Pods) {
    let pod = pod_that_says("HTTP/1.0 200 OK\r\nServer: SimpleHTTP\r\n\r\nhello").await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    let request = |close: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{close}\r\n");
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    let both = request("") + &request("Connection: close\r\n");
    stream.write_all(both.as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answers}");
    assert_eq!(answers.matches("transfer-encoding: chunked\r\n").count(), 2, "{answers}");
    assert_eq!(answers.matches("5\r\nhello\r\n0\r\n\r\n").count(), 2, "{answers}");
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
}

async fn long_heads_of_many_lines_arrive(pods: Pods) {
    let lines: String = (0..800).map(|n| format!("Set-Cookie: c{n}={}\r\n", "x".repeat(60))).collect();
    let pod = pod_that_says(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n")).await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    let answer = fixture.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(answer.matches("set-cookie: ").count(), 800, "{answer:.200}");
}

async fn long_heads_that_come_line_by_line_arrive(pods: Pods) {
    async fn write_lines(stream: &mut TcpStream, text: &str) {
        for line in text.split_inclusive('\n') {
            stream.write_all(line.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
    }
    fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        text.lines().filter_map(|line| line.strip_prefix(name)).collect()
    }
    let numbers: Vec<_> = (0..300).map(|n| n.to_string()).collect();
    let lines = |name: &str| numbers.iter().map(|n| format!("{name}: {n}\r\n")).collect::<String>();
    let interim = format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", lines("X-A"));
    let short = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nhi", lines("X-A"));
    let rest = format!(
        "Transfer-Encoding: chunked\r\n{}Trailer: X-T\r\n\r\n5\r\nhello\r\n0\r\n{}\r\n",
        lines("X-A"),
        lines("X-T")
    );
    let answers = [format!("{interim}{short}"), format!("{interim}HTTP/1.1 200 OK\r\n{rest}")];
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let pod = FakePod::with(0, move |mut stream: TcpStream| {
        let ([short, long], sender) = (answers.clone(), sender.clone());
        async move {
            stream.set_nodelay(true).unwrap();
            let mut sent = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                sent.push(byte);
                let is_get = sent.starts_with(b"GET");
                if sent.ends_with(b"\r\n\r\n") && (is_get || sent.windows(5).any(|end| end == b"\r\n0\r\n")) {
                    sender.send(String::from_utf8(std::mem::take(&mut sent)).unwrap()).unwrap();
                    write_lines(&mut stream, if is_get { &short } else { &long }).await;
                }
            }
        }
    })
    .await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    let mut client = TcpStream::connect(fixture.address).await.unwrap();
    client.set_nodelay(true).unwrap();
    let head = "HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n";
    let get = format!("GET / {head}{}\r\n", lines("X-A"));
    let requests = format!("{get}{get}POST / {head}Connection: close\r\n{rest}");
    write_lines(&mut client, &requests).await;
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    for trailers in [0, 0, 300] {
        let sent = received.recv().await.unwrap();
        assert_eq!(values(&sent, "x-a: "), numbers);
        assert_eq!(values(&sent, "x-t: "), numbers[..trailers]);
    }
    let thrice = [numbers.clone(), numbers.clone(), numbers.clone()].concat();
    assert_eq!(values(&answers, "x-a: "), thrice, "{answers}");
    assert_eq!(values(&answers, "x-t: "), numbers, "{answers}");
}

async fn details_of_grpc_errors_arrive_whole(pods: Pods) {
    async fn grpc(
        _: Request<Incoming>,
    ) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
        let details = ("grpc-status-details-bin".parse().unwrap(), "x".repeat(60_000).parse().unwrap());
        let trailers =
            HeaderMap::from_iter([("grpc-status".parse().unwrap(), "9".parse().unwrap()), details]);
        Ok(Response::new(StreamBody::new(futures_util::stream::iter([Ok(Frame::trailers(trailers))]))))
    }
    let pod = FakePod::with(0, async |stream: TcpStream| {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), service_fn(grpc)).await;
    })
    .await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::H2c).await;
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_header_list_size(128 * 1024);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://web.example/").body(Full::default()).unwrap();
    let response = Client::Http2(sender).send(request).await.unwrap();
    let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap();
    assert_eq!(trailers["grpc-status"], "9");
    assert_eq!(trailers["grpc-status-details-bin"].len(), 60_000);
}

async fn trailers_arrive_without_what_they_say_of_the_origin(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let mut sent = Vec::new();
        while !sent.ends_with(b"\r\n\r\n") || !sent.windows(5).any(|end| end == b"\r\n0\r\n") {
            sent.push(stream.read_u8().await.unwrap());
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len());
        stream.write_all(&[head.as_bytes(), &sent].concat()).await.unwrap();
    })
    .await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    let names = "X-Checksum, X-Forwarded-For, X-Real-IP";
    let answer = fixture
        .raw(
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: {names}\r\n\r\n\
                 5\r\nhello\r\n0\r\nX-Checksum: 1\r\nX-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\r\n"
            )
            .as_bytes(),
        )
        .await;
    assert!(answer.contains("hello\r\n0\r\nx-checksum: 1\r\n\r\n"), "{answer}");
}

async fn a_refused_upload_is_answered_before_its_connection_ends(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]).await;
        let answer = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let _ = stream.write_all(answer).await;
        let _ = stream.shutdown().await;
        while let Ok(1..) = stream.read(&mut [0; 64 * 1024]).await {}
    })
    .await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    for _ in 0..10 {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            30 * 100_000
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..30 {
            stream.write_all(&[b'x'; 100_000]).await.expect("the rest is taken in");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_pod_that_answers_an_upload_and_closes_at_once_is_heard() {
    let pod = pod_that_says("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
    let fixture = fixture_of(Pods::OnThisHost, &pod, HttpProtocol::Http).await;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; 3_000_000]).await.expect("the rest is taken in");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer:?}");
    }
}

/// Like some Python servers.
async fn requests_to_a_pod_that_closes_each_connection_do_not_fail(pods: Pods) {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        // The answer arrives before the end.
        tokio::time::sleep(Duration::from_micros(300)).await;
    })
    .await;
    let fixture = fixture_of(pods, &pod, HttpProtocol::Http).await;
    let mut client = Client::connect(fixture.address).await;
    for number in 0..200 {
        let request = if number % 10 == 0 { Request::get("/") } else { Request::post("/") };
        let body = if number % 10 == 0 { Full::default() } else { Full::from("x") };
        let response = client.send(request.header("host", "a").body(body).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "request {number}");
        assert_eq!(text(response).await, "ok");
    }
}

#[tokio::test]
async fn requests_to_a_pod_that_keeps_its_connections_share_them() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let config = IngressConfig { threads: 1, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let mut client = Client::connect(fixture.address).await;
    let mut post = async || {
        let request = Request::post("/").header("host", "a").body(Full::from("x")).unwrap();
        text(client.send(request).await.unwrap()).await;
        pod.open_connections()
    };
    let before = post().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..50 {
        assert_eq!(post().await, before);
    }
}

async fn a_pod_may_take_as_long_as_its_rule_says(pods: Pods) {
    let pod = FakePod::http1("p", 0, Duration::from_millis(1500)).await;
    for (seconds, expected) in [(1, StatusCode::GATEWAY_TIMEOUT), (30, StatusCode::OK)] {
        let timeout = Some(Seconds::new(seconds));
        let rules = vec![rule_with(pod.port, |rule| rule.answer_timeout = timeout)];
        let fixture = Fixture::start_with(pods, IngressConfig::default(), rules).await;
        fixture.set_only_pod("p");
        let response = fixture.request(get("/")).await;
        assert_eq!(response.status(), expected);
        if expected == StatusCode::GATEWAY_TIMEOUT {
            assert!(text(response).await.contains("no answer within 1 s, the `answer_timeout` of its rule"));
        }
    }
}

#[tokio::test]
async fn a_request_to_a_port_that_stays_closed_waits_no_more() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let port = pod.port;
    pod.kill().await;
    let wait = Duration::from_millis(500);
    let config = IngressConfig { wait, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    for is_first in [true, false, false] {
        let begun = Instant::now();
        let response = fixture.request(get("/")).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(begun.elapsed() >= wait, is_first, "{:?}", begun.elapsed());
    }
    let _pod = FakePod::http1("p", port, Duration::ZERO).await;
    assert_eq!(fixture.request(get("/")).await.status(), StatusCode::OK, "it was opened");
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_why() {
    let pod = pod_that_says("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    let fixture = fixture_of(Pods::OnThisHost, &pod, HttpProtocol::Http).await;
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "Bad Request: The request has no Host.\n"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET\r\n\r\n".to_owned(),
            "Bad Request: The request has a request line that is not method, target and version.\n",
        ),
        (
            format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(65_534)),
            "The head of the request has more",
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "HTTP/1.1 400 Bad Request\r\ncontent-length: 0"),
    ] {
        let answer = fixture.raw(request.as_bytes()).await;
        assert!(answer.contains(expected), "{request:.60}: {answer}");
        let (head, body) = answer.rsplit_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
    }
}

#[tokio::test]
async fn a_client_is_told_that_its_connection_ends() {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 64 * 1024]).await;
    })
    .await;
    let fixture = fixture_of(Pods::OnThisHost, &pod, HttpProtocol::Http).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n";
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    stream.write_all(&[head.as_bytes(), &[b'x'; 200_000]].concat()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("connection: close\r\n"), "{answer}");
    let mut client = Client::connect(fixture.address).await;
    let response = client.send(get("/")).await.unwrap();
    assert!(!response.headers().contains_key("connection"));
}

super::wherever_the_pod_is! {
    an_answer_that_breaks_off_has_its_head_and_what_came_of_it,
    a_pod_of_http_1_0_is_answered_from_by_http_1_1_on_a_connection_that_stays,
    long_heads_of_many_lines_arrive,
    long_heads_that_come_line_by_line_arrive,
    details_of_grpc_errors_arrive_whole,
    trailers_arrive_without_what_they_say_of_the_origin,
    a_refused_upload_is_answered_before_its_connection_ends,
    requests_to_a_pod_that_closes_each_connection_do_not_fail,
    a_pod_may_take_as_long_as_its_rule_says,
}
