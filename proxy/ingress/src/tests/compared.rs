//! Sends the same requests and answers through nginx and the ingress. Only named differences are allowed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use model::network::ingress::HttpProtocol;
use parking_lot::Mutex;
use testkit::ports::free_port;
use testkit::{ChildGuard, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{FakePod, Fixture, rule};
use crate::IngressConfig;
use crate::client::framing::Scanner;
use crate::scanner::FramingState;

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// nginx treats interim answers as final.
const FINAL: &str = "nginx takes it for the answer";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

struct Case {
    name: &'static str,
    request: String,
    answer: String,
    difference: Option<&'static str>,
}

fn case(name: &'static str, request: impl Into<String>, answer: impl Into<String>) -> Case {
    Case { name, request: request.into(), answer: answer.into(), difference: None }
}

impl Case {
    fn differs(self, why: &'static str) -> Self {
        Self { difference: Some(why), ..self }
    }
}

fn sent(method: &str, target: &str, lines: &str, body: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n{body}")
}

fn answer(status: &str, lines: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{lines}\r\n{body}")
}

fn requests() -> Vec<Case> {
    let lines = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    let chunked = "Transfer-Encoding: chunked\r\n";
    let offer = "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n";
    vec![
        case("plain", GET, OK),
        case("HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", OK),
        case("HTTP/1.0 that stays", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", OK),
        case("HEAD", sent("HEAD", "/a", "", ""), answer("200 OK", "Content-Length: 2\r\n", "")),
        case("DELETE with a body", sent("DELETE", "/a", "Content-Length: 2\r\n", "hi"), OK),
        case("GET with a body", sent("GET", "/a", "Content-Length: 2\r\n", "hi"), OK),
        case("a method of its own", sent("PROPFIND", "/a", "", ""), OK),
        case("a query with odd characters", sent("GET", "/a?b={c}|[d]^`", "", ""), OK),
        case("a quotation mark in a query", sent("GET", "/a?b=\"c\"", "", ""), OK)
            .differs("no URL has one that is not percent-encoded"),
        case("percent-encoded", sent("GET", "/a%2Fb%20c?%20", "", ""), OK),
        case("percent and no number", sent("GET", "/a%00?%zz", "", ""), OK).differs("the pod decodes it"),
        case("two slashes", sent("GET", "//a//b", "", ""), OK),
        case("an absolute target", sent("GET", "http://a/b", "", ""), OK),
        case("chunks", sent("POST", "/a", chunked, "2\r\nhi\r\n0\r\n\r\n"), OK),
        case("chunk extensions", sent("POST", "/a", chunked, "2;a=b\r\nhi\r\n0\r\n\r\n"), OK),
        case("trailers", sent("POST", "/a", chunked, "2\r\nhi\r\n0\r\nX: y\r\n\r\n"), OK),
        case("a large chunk size", sent("POST", "/a", chunked, "00000002\r\nhi\r\n0\r\n\r\n"), OK),
        case("expect", sent("POST", "/a", "Expect: 100-continue\r\nContent-Length: 2\r\n", "hi"), OK),
        case("an empty header", sent("GET", "/a", "X:\r\n", ""), OK),
        case("90 lines", sent("GET", "/a", &lines(90), ""), OK),
        case("300 lines", sent("GET", "/a", &lines(300), ""), OK),
        case("bytes beyond ASCII in a header", sent("GET", "/a", "X: \u{e9}\r\n", ""), OK),
        case("an offer of HTTP/2", sent("POST", "/a", offer, "hi"), OK),
        case("a line that ends without CR", "GET /a HTTP/1.1\nHost: a\nConnection: close\n\n", OK)
            .differs("other servers see a different request"),
        case("an empty line first", format!("\r\n{GET}"), OK),
    ]
}

fn answers() -> Vec<Case> {
    let with = |name, answer: String| case(name, GET, answer);
    let cookies: String = (0..300).map(|n| format!("Set-Cookie: c{n}=x\r\n")).collect();
    vec![
        with("an answer by HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nhello".to_owned()),
        with("an answer of unknown length", answer("200 OK", "", "hello")),
        with(
            "an answer in chunks",
            answer("200 OK", "Transfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"),
        ),
        with("an answer without a reason", answer("200", "Content-Length: 2\r\n", "ok")),
        with("an empty reason", answer("200 ", "Content-Length: 2\r\n", "ok")),
        with("a status of its own", answer("299 Fine", "Content-Length: 2\r\n", "ok")),
        with("a status above 599", answer("799 Odd", "Content-Length: 2\r\n", "ok")),
        with("204", answer("204 No Content", "", "")),
        with("304 with a length", answer("304 Not Modified", "Content-Length: 20\r\n", "")),
        with("100 first", answer("100 Continue", "", OK)).differs(FINAL),
        with("102 first", answer("102 Processing", "", OK)).differs(FINAL),
        with("103 first", answer("103 Early Hints", "Link: </a.css>\r\n", OK)).differs(FINAL),
        with("300 cookies", answer("200 OK", &format!("{cookies}Content-Length: 2\r\n"), "ok")),
        with("one that breaks off", answer("200 OK", "Content-Length: 10\r\n", "ok")),
        with("chunks that break off", answer("200 OK", "Transfer-Encoding: chunked\r\n", "2\r\nok\r\n")),
        with("lines that end without CR", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok".to_owned()),
        with("two equal lengths", answer("200 OK", "Content-Length: 2\r\nContent-Length: 2\r\n", "ok")),
        with("two lengths", answer("200 OK", "Content-Length: 2\r\nContent-Length: 3\r\n", "ok"))
            .differs("its end is unknown"),
        with("a length and chunks", {
            answer("200 OK", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n")
        }),
        with("a header over two lines", answer("200 OK", "X: a\r\n b\r\nContent-Length: 2\r\n", "ok")),
        with("no answer", String::new()),
        with("nothing that is HTTP", "hello\r\n\r\n".to_owned()).differs("nginx takes it for HTTP/0.9"),
        with("more than its length", answer("200 OK", "Content-Length: 2\r\n", "okmore")),
    ]
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    at_pod: Vec<(String, String)>,
    status: String,
    body: String,
}

#[derive(Clone, Default)]
struct Script {
    answer: Arc<Mutex<String>>,
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl Script {
    async fn pod(&self) -> FakePod {
        let script = self.clone();
        FakePod::with(0, move |stream| {
            let script = script.clone();
            async move { script.serve(stream).await }
        })
        .await
    }

    async fn serve(&self, mut stream: TcpStream) {
        let (mut request, mut bytes) = (Vec::new(), [0; 64 * 1024]);
        let mut scanner = Scanner::default();
        while let Ok(length @ 1..) = stream.read(&mut bytes).await {
            request.extend_from_slice(&bytes[..length]);
            if scanner.feed(&bytes[..length]).is_err() || scanner.state() == FramingState::Between {
                break;
            }
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
            let body = if is_chunked { dechunked(body) } else { body.to_owned() };
            let first =
                head.lines().next().unwrap_or_default().rsplit_once(' ').map_or("", |(first, _)| first);
            self.seen.lock().push((first.to_owned(), body));
        }
        let answer = self.answer.lock().clone();
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    async fn outcome(&self, proxy: SocketAddr, case: &Case) -> Outcome {
        self.answer.lock().clone_from(&case.answer);
        self.seen.lock().clear();
        let mut stream = TcpStream::connect(proxy).await.unwrap();
        stream.write_all(case.request.as_bytes()).await.unwrap();
        let mut got = Vec::new();
        let reading = stream.read_to_end(&mut got);
        let _ = tokio::time::timeout(Duration::from_millis(1500), reading).await;
        let text = String::from_utf8_lossy(&got).into_owned();
        // `100 Continue` is optional.
        let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { dechunked(body) } else { body.to_owned() };
        let is_of_proxy = status == "502" || status == "400";
        let mut at_pod = self.seen.lock().clone();
        at_pod.dedup();
        Outcome { at_pod, status, body: if is_of_proxy { String::new() } else { body } }
    }
}

fn dechunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        body.push_str(&rest[..size]);
        text = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}

async fn nginx(folder: &Path, pod: u16) -> (SocketAddr, ChildGuard) {
    let port = free_port();
    let file = folder.join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; error_log stderr; events {{}}
         http {{ access_log off; client_body_temp_path {0}; proxy_temp_path {0}; server {{
           listen 127.0.0.1:{port}; merge_slashes off; client_max_body_size 0;
           location / {{ proxy_pass http://127.0.0.1:{pod}; proxy_http_version 1.1; proxy_buffering off;
             proxy_buffer_size 64k; proxy_buffers 8 64k;
             proxy_busy_buffers_size 128k; proxy_request_buffering off; proxy_set_header Host $host; }} }} }}",
        folder.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    let process = ChildGuard::spawn(&mut command).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    eventually("nginx", async || TcpStream::connect(address).await.is_ok()).await;
    (address, process)
}

#[tokio::test]
async fn what_nginx_passes_is_passed() {
    if Command::new("nginx").arg("-v").output().is_err() {
        testkit::require::skipped("nginx", "it is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = Script::default();
    let pod = script.pod().await;
    let (nginx, _process) = nginx(folder.path(), pod.port).await;
    let fixture = Fixture::start(IngressConfig::default(), vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let mut wrong = Vec::new();
    for case in requests().into_iter().chain(answers()) {
        let (theirs, ours) =
            (script.outcome(nginx, &case).await, script.outcome(fixture.address, &case).await);
        if theirs != ours && case.difference.is_none() {
            wrong.push(format!("{}\n  nginx {theirs:?}\n  ours  {ours:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
