//! Clients that send a byte at a time, and chunks of one byte, do not disturb others.
//!
//! `INGRESS_SLOW_CLIENTS=10000` and `INGRESS_CHUNKS=1000000` select the long form.

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use model::network::ingress::{HttpProtocol, HttpRule, IngressRule};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::fixture::{Client, FakePod, Fixture, get, rule, text};
use crate::IngressConfig;

const CLIENTS: usize = 8;
const BETWEEN: Duration = Duration::from_millis(10);
const UNDISTURBED: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(1);
/// Tests of other crates run in parallel.
const P99_TIMES: u32 = 5;
const P99_AT_LEAST: Duration = Duration::from_millis(200);
/// One address may have 1,000.
const PER_ADDRESS: usize = 900;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are printed")]
struct Latencies {
    requests: usize,
    p50: Duration,
    p99: Duration,
    longest: Duration,
}

/// Until `disturbance` has ended.
async fn measure<T>(address: SocketAddr, disturbance: impl Future<Output = T>) -> (Latencies, T) {
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let has_ended = has_ended.clone();
        let mut client = Client::connect(address).await;
        clients.spawn(async move {
            let mut latencies = Vec::new();
            while !has_ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let response = client.send(get("/")).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                text(response).await;
                latencies.push(begun.elapsed());
                tokio::time::sleep(BETWEEN).await;
            }
            latencies
        });
    }
    let value = disturbance.await;
    has_ended.store(true, Ordering::Relaxed);
    let mut all: Vec<Duration> = clients.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    let at = |hundredths: usize| all[all.len() * hundredths / 100];
    (Latencies { requests: all.len(), p50: at(50), p99: at(99), longest: all[all.len() - 1] }, value)
}

async fn compare<T>(address: SocketAddr, disturbance: impl Future<Output = T>) -> T {
    let (undisturbed, ()) = measure(address, tokio::time::sleep(UNDISTURBED)).await;
    let (disturbed, value) = measure(address, disturbance).await;
    println!("undisturbed: {undisturbed:?}\ndisturbed: {disturbed:?}");
    assert!(disturbed.longest < LONGEST, "{disturbed:?}");
    assert!(
        disturbed.p99 < (undisturbed.p99 * P99_TIMES).max(P99_AT_LEAST),
        "{undisturbed:?}, {disturbed:?}"
    );
    value
}

struct SlowClient {
    stream: std::net::TcpStream,
    begun: Instant,
    bytes: &'static [u8],
    cut_after: Option<Duration>,
}

impl SlowClient {
    fn connect(address: SocketAddr, index: usize) -> Self {
        // HTTP/1, the beginning of HTTP/2, and bytes that could become either.
        let kinds: [&[u8]; 3] = [
            b"GET / HTTP/1.1\r\nHost: a\r\nX: yyyyyyyyyyyyyyyyyyyyyyyy",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
            b"PR",
        ];
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let source = u32::from(Ipv4Addr::new(127, 0, 1, 1)) + (index / PER_ADDRESS) as u32;
        socket.bind(&SocketAddr::from((Ipv4Addr::from(source), 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        let stream = std::net::TcpStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        Self { stream, begun: Instant::now(), bytes: kinds[index % kinds.len()], cut_after: None }
    }

    fn step(&mut self) {
        if self.cut_after.is_some() {
            return;
        }
        if let [byte, rest @ ..] = self.bytes
            && self.stream.write(&[*byte]).is_ok()
        {
            self.bytes = rest;
        }
        let is_open = match self.stream.read(&mut [0; 256]) {
            Ok(length) => length > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        if !is_open {
            self.cut_after = Some(self.begun.elapsed());
        }
    }
}

/// Returns each one's lifetime, at most `most`.
fn be_slow(address: SocketAddr, count: usize, most: Duration) -> Vec<Option<Duration>> {
    let begun = Instant::now();
    let mut clients: Vec<SlowClient> = Vec::with_capacity(count);
    while clients.len() < count {
        clients.push(SlowClient::connect(address, clients.len()));
        // Keeps the accept queue from filling up.
        if clients.len().is_multiple_of(50) {
            thread::sleep(Duration::from_millis(10));
        }
    }
    println!("{count} slow clients after {:?}", begun.elapsed());
    let deadline = Instant::now() + most;
    while Instant::now() < deadline && clients.iter().any(|client| client.cut_after.is_none()) {
        for some in clients.chunks_mut(count.div_ceil(50)) {
            let next = Instant::now() + Duration::from_millis(20);
            some.iter_mut().for_each(SlowClient::step);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    clients.into_iter().map(|client| client.cut_after).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_clients_that_send_a_byte_a_second_disturb_none_and_are_cut() {
    // Both ends of each connection are in this process.
    let most = (daemon::file_limit::raise() as usize).saturating_sub(500) / 2;
    let count = number("INGRESS_SLOW_CLIENTS", 1000).min(most);
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let head_within = Duration::from_secs(if count > 1000 { 10 } else { 4 });
    let config = IngressConfig { head_within, ..IngressConfig::default() };
    let fixture = Fixture::start(config, vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let address = fixture.address;
    let slow = move || be_slow(address, count, head_within + Duration::from_secs(20));
    let cut_after = compare(address, async { tokio::task::spawn_blocking(slow).await.unwrap() }).await;
    let open = cut_after.iter().filter(|after| after.is_none()).count();
    assert_eq!(open, 0, "of {count} are still open");
    let cut_after: Vec<Duration> = cut_after.into_iter().flatten().collect();
    println!("cut after {:?} to {:?}", cut_after.iter().min(), cut_after.iter().max());
    // A client checks once a second.
    let longest = head_within + Duration::from_secs(5);
    assert!(cut_after.iter().all(|after| *after + Duration::from_secs(1) > head_within && *after < longest));
}

fn rule_of_path(path: &str, port: u16) -> IngressRule {
    let (host, path) = (String::new(), path.to_owned());
    IngressRule::Http(HttpRule {
        host,
        path,
        port,
        protocol: HttpProtocol::Http,
        tls: None,
        ..HttpRule::default()
    })
}

async fn answer_in_chunks(
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let mut body = request.into_body();
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame.unwrap().into_data().unwrap().len();
    }
    let chunks = futures_util::stream::iter((0..count).map(|_| Ok(Frame::data(Bytes::from_static(b"y")))));
    Ok(Response::new(StreamBody::new(chunks)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_very_many_chunks_of_one_byte_arrives_and_disturbs_none() {
    let count = number("INGRESS_CHUNKS", 50_000);
    // Both ends of the chunked requests have their own event loops.
    let own = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let serve = |stream| async move {
        let server = hyper::server::conn::http1::Builder::new();
        let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer_in_chunks)).await;
    };
    let chunks = own.spawn(async move { FakePod::with(0, serve).await }).await.unwrap();
    let rules = vec![rule(pod.port, HttpProtocol::Http), rule_of_path("/chunks", chunks.port)];
    let fixture = Fixture::start(IngressConfig::default(), rules).await;
    fixture.set_only_pod("p");
    let address = fixture.address;
    let exchange = async move {
        let begun = Instant::now();
        let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
        let sending = tokio::spawn(async move {
            let head =
                "POST /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
            writer.write_all(head.as_bytes()).await.unwrap();
            let thousand = "1\r\nx\r\n".repeat(1000);
            for begin in (0..count).step_by(1000) {
                let some = (count - begin).min(1000);
                writer.write_all(&thousand.as_bytes()[..some * "1\r\nx\r\n".len()]).await.unwrap();
            }
            writer.write_all(b"0\r\n\r\n").await.unwrap();
            writer
        });
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer).await.unwrap();
        drop(sending.await.unwrap());
        println!("{count} chunks each way within {:?}", begun.elapsed());
        String::from_utf8(answer).unwrap()
    };
    let answer = compare(address, async { own.spawn(exchange).await.unwrap() }).await;
    own.shutdown_background();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body.matches('y').count(), count);
    assert!(body.ends_with("0\r\n\r\n"));
}
