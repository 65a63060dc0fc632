//! HTTPS at the ingress, and plain HTTP for rules that require HTTPS.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::network::ingress::{HttpProtocol, HttpRule, IngressRule, Tls};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::Authority;
use super::fixture::{Client, FakePod, Fixture, eventually, get, rule, text};
use crate::{HttpsConfig, IngressConfig};

struct Secure {
    fixture: Fixture,
    authority: Authority,
    directory: TempDir,
    _pod: FakePod,
}

fn https_rule(port: u16) -> IngressRule {
    let protocol = HttpProtocol::Http;
    IngressRule::Http(HttpRule {
        host: String::new(),
        path: "/".into(),
        port,
        protocol,
        tls: Some(Tls::Files),
        ..HttpRule::default()
    })
}

fn with_https(directory: &Path) -> IngressConfig {
    let look_every = Duration::from_millis(20);
    let listen = "127.0.0.1:0".parse().unwrap();
    let certificates = Some(directory.to_owned());
    let https = HttpsConfig { look_every, certificates, ..HttpsConfig::new(listen) };
    IngressConfig { https: Some(https), ..IngressConfig::default() }
}

impl Secure {
    async fn start() -> Self {
        Self::start_with(|port| rule(port, HttpProtocol::Http), |config| config).await
    }

    async fn start_with(
        rule: impl FnOnce(u16) -> IngressRule,
        change: impl FnOnce(IngressConfig) -> IngressConfig,
    ) -> Self {
        let (authority, directory) = (Authority::new(), tempfile::tempdir().unwrap());
        authority.issue(&["web.example"], 2090).write(directory.path(), "web");
        authority.issue(&["*.wild.example", "other.example"], 2090).write(directory.path(), "other");
        let pod = FakePod::http1("p", 0, Duration::ZERO).await;
        let config = change(with_https(directory.path()));
        let fixture = Fixture::start(config, vec![rule(pod.port)]).await;
        fixture.set_only_pod("p");
        Self { fixture, authority, directory, _pod: pod }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.fixture.https_address.unwrap()).await.unwrap()
    }

    async fn tls(&self, name: &str, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.authority.roots())
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await
    }

    async fn http1(&self, name: &str) -> Client {
        let stream = self.tls(name, &["http/1.1"]).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client::Http1(sender)
    }

    async fn certificate(&self, name: &str) -> Option<Vec<u8>> {
        let stream = self.tls(name, &[]).await.ok()?;
        Some(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec())
    }
}

#[tokio::test]
async fn https_is_spoken_by_http1_and_http2_as_the_client_likes_and_pods_are_told() {
    let secure = Secure::start().await;
    let seen = text(secure.http1("web.example").await.send(get("/a?b")).await.unwrap()).await;
    assert!(seen.starts_with("p 0 GET /a?b "), "{seen}");
    assert!(seen.contains(r#""x-forwarded-proto": "https""#), "{seen}");
    assert!(seen.contains("host=web.example;proto=https"), "{seen}");

    let stream = secure.tls("web.example", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("https://web.example/b").body(Full::from(vec![b'x'; 300_000])).unwrap();
    let seen = text(Client::Http2(sender).send(request).await.unwrap()).await;
    assert!(seen.starts_with("p 300000 POST /b "), "{seen}");
    assert!(seen.contains(r#""x-forwarded-proto": "https""#), "{seen}");

    // Without ALPN it is HTTP/1.1.
    let mut stream = secure.tls("web.example", &[]).await.unwrap();
    stream.write_all(b"GET /c HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("GET /c"), "{answer}");

    let seen = text(secure.fixture.request(get("/")).await).await;
    assert!(seen.contains(r#""x-forwarded-proto": "http""#), "plain HTTP is as it was: {seen}");
}

#[tokio::test]
async fn the_certificate_is_chosen_by_name_and_unknown_names_are_refused() {
    let secure = Secure::start().await;
    for name in ["web.example", "a.wild.example", "other.example"] {
        assert!(secure.certificate(name).await.is_some(), "{name}");
    }
    for name in ["unknown.example", "wild.example", "a.b.wild.example", "127.0.0.1"] {
        let error = secure.tls(name, &[]).await.unwrap_err().to_string();
        assert!(error.contains("alert"), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_served_to_new_connections_and_a_faulty_one_is_not() {
    let secure = Secure::start().await;
    let first = secure.certificate("web.example").await.unwrap();
    let mut open = secure.http1("web.example").await;
    std::fs::write(secure.directory.path().join("web.crt"), "faulty").unwrap();
    secure.authority.issue(&["new.example"], 2090).write(secure.directory.path(), "new");
    // Once the new one is there, the faulty one was read too.
    eventually(async || secure.certificate("new.example").await.is_some()).await;
    assert_eq!(secure.certificate("web.example").await.unwrap(), first);
    secure.authority.issue(&["web.example"], 2091).write(secure.directory.path(), "web");
    eventually(async || secure.certificate("web.example").await.is_some_and(|now| now != first)).await;
    assert_eq!(open.send(get("/")).await.unwrap().status(), StatusCode::OK, "the connection stays");
    std::fs::remove_file(secure.directory.path().join("new.crt")).unwrap();
    eventually(async || secure.certificate("new.example").await.is_none()).await;
}

#[tokio::test]
async fn a_client_that_takes_too_long_for_the_handshake_is_cut_and_counts_until_then() {
    let within = Duration::from_secs(1);
    let limits = |config| IngressConfig { head_within: within, connections_per_client: 1, ..config };
    let secure = Secure::start_with(|port| rule(port, HttpProtocol::Http), limits).await;
    let begun = Instant::now();
    let mut silent = secure.tcp().await;
    // This client's only connection is taken, for both schemes. A port accepts in the order of arrival.
    assert_eq!(secure.certificate("web.example").await, None);
    assert!(Client::connect(secure.fixture.address).await.send(get("/")).await.is_err());
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    let took = begun.elapsed();
    assert!(took >= within && took < Duration::from_secs(5), "{took:?}");
    eventually(async || secure.certificate("web.example").await.is_some()).await;
}

fn location<B>(response: &Response<B>) -> &str {
    response.headers()["location"].to_str().unwrap()
}

fn asking(host: &str, scheme: &str) -> Request<Full<bytes::Bytes>> {
    let request = Request::post("/a/b?c=d").header("host", host).header("x-forwarded-proto", scheme);
    request.body(Full::from("x")).unwrap()
}

#[tokio::test]
async fn a_rule_with_tls_redirects_plain_http_and_serves_https() {
    let secure = Secure::start_with(https_rule, |config| config).await;
    let port = secure.fixture.https_address.unwrap().port();
    for (host, expected) in [("web.example", "web.example"), ("A.Wild.Example:80", "a.wild.example")] {
        // The scheme header of an untrusted client is ignored.
        let response = secure.fixture.request(asking(host, "https")).await;
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(location(&response), format!("https://{expected}:{port}/a/b?c=d"));
    }
    let response = secure.http1("web.example").await.send(asking("web.example", "http")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let response = secure.fixture.request(asking("unknown.example", "http")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let why = text(response).await;
    assert!(why.contains("\"unknown.example\"") && why.contains("KUBELEET_CERTIFICATES"), "{why}");
}

#[tokio::test]
async fn what_a_trusted_proxy_has_taken_by_https_is_not_redirected() {
    let trusting = |config| IngressConfig { trusted: vec!["127.0.0.1".parse().unwrap()], ..config };
    let secure = Secure::start_with(https_rule, trusting).await;
    for (scheme, expected) in [
        ("https", StatusCode::OK),
        ("http", StatusCode::PERMANENT_REDIRECT),
        ("", StatusCode::PERMANENT_REDIRECT),
    ] {
        let response = secure.fixture.request(asking("web.example", scheme)).await;
        assert_eq!(response.status(), expected, "{scheme}");
    }
}

#[tokio::test]
async fn a_rule_with_tls_is_a_problem_where_there_are_no_certificates() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = Fixture::start(IngressConfig::default(), vec![https_rule(pod.port)]).await;
    fixture.set_only_pod("p");
    let mut request = get("/");
    request.headers_mut().insert("accept", "application/json".parse().unwrap());
    let response = fixture.request(request).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(problem["type"], "no-https");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("web.example") && detail.contains("KUBELEET_CERTIFICATES"), "{detail}");
}

#[tokio::test]
async fn an_upgraded_connection_by_https_passes_bytes_both_ways() {
    let pod = FakePod::with(0, async |mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let secure = Secure::start_with(|_| rule(pod.port, HttpProtocol::Http), |config| config).await;
    let mut client = secure.tls("web.example", &["http/1.1"]).await.unwrap();
    let head = b"GET /ws HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(head).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(client.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    let sent: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut read, mut write) = tokio::io::split(client);
    let bytes = sent.clone();
    let sending = tokio::spawn(async move {
        write.write_all(&bytes).await.unwrap();
        write.flush().await.unwrap();
        write
    });
    let mut echoed = vec![0; sent.len()];
    read.read_exact(&mut echoed).await.unwrap();
    assert!(echoed == sent);
    drop(sending.await.unwrap());
}
