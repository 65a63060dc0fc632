//! Malformed and odd requests: nginx, HAProxy and Python's server must each see a single one.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use model::network::ingress::HttpProtocol;
use testkit::ports::free_port;
use testkit::{ChildGuard, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{Fixture, rule};
use super::malformed::{Record, connections, corpus, recorder, whole_requests};
use crate::IngressConfig;

struct Server {
    name: &'static str,
    port: u16,
    _process: ChildGuard,
}

/// Python leaves bodies to its handlers.
const PYTHON: &str = r"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self):
        if self.headers.get('Transfer-Encoding', '').lower() == 'chunked':
            while length := int(self.rfile.readline().split(b';')[0], 16):
                self.rfile.read(length + 2)
            while self.rfile.readline().strip():
                pass
        else:
            self.rfile.read(int(self.headers.get('Content-Length', '0')))
        text = f'{self.command} {self.path}\n'.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_OPTIONS = answer

ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

impl Server {
    async fn start(name: &'static str, port: u16, command: &mut Command) -> Self {
        let process = ChildGuard::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        let connect = || async { TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await };
        eventually(name, async || connect().await.is_ok()).await;
        Self { name, port, _process: process }
    }

    async fn start_all(folder: &Path) -> [Self; 3] {
        let [nginx, haproxy, python] = std::array::from_fn(|_| free_port());
        let nginx_file = folder.join("nginx.conf");
        let nginx_text = format!(
            "daemon off; master_process off; pid {0}/pid; error_log stderr; events {{}}
             http {{ access_log off; client_body_temp_path {0}; server {{ listen 127.0.0.1:{nginx};
               location / {{ return 200 \"$request_method $request_uri\\n\"; }} }} }}",
            folder.display()
        );
        let haproxy_file = folder.join("haproxy.conf");
        let haproxy_text = format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
             listen web\n bind 127.0.0.1:{haproxy}\n http-reuse always\n server pod 127.0.0.1:{nginx}\n"
        );
        std::fs::write(&nginx_file, nginx_text).unwrap();
        std::fs::write(&haproxy_file, haproxy_text).unwrap();
        [
            Self::start("nginx", nginx, Command::new("nginx").arg("-c").arg(nginx_file)).await,
            Self::start("HAProxy", haproxy, Command::new("haproxy").arg("-db").arg("-f").arg(haproxy_file))
                .await,
            Self::start("Python", python, Command::new("python3").args(["-c", PYTHON, &python.to_string()]))
                .await,
        ]
    }

    /// Sends another request on the same connection.
    async fn answers(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        let next = b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(&[request, next].concat()).await.unwrap();
        let mut answers = Vec::new();
        // A reset after the answer is an end as well.
        let _ = stream.read_to_end(&mut answers).await;
        String::from_utf8_lossy(&answers).into_owned()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// One request, and the next one began at its end.
    Exactly1,
    Refused,
    Otherwise,
}

fn seen(request: &[u8], answers: &str) -> Seen {
    let first_line = String::from_utf8_lossy(request).lines().next().unwrap_or_default().to_owned();
    let target = first_line.trim_end_matches(" HTTP/1.1");
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    let bodies: Vec<&str> =
        answers.lines().filter(|line| line.starts_with("GET /") || line.starts_with("POST /")).collect();
    match statuses[..] {
        ["200", "200"] if bodies == [target, "GET /next"] => Seen::Exactly1,
        [status] if status.starts_with('4') && bodies.is_empty() => Seen::Refused,
        _ => Seen::Otherwise,
    }
}

#[tokio::test]
async fn what_a_pod_is_sent_for_a_malformed_request_is_exactly_one_for_other_servers_too() {
    let is_missing = |program: &&str| Command::new(program).arg("-v").output().is_err();
    if let Some(missing) = ["nginx", "haproxy", "python3"].iter().find(|program| is_missing(program)) {
        testkit::require::skipped(missing, "it is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let servers = Server::start_all(folder.path()).await;
    let record = Record::default();
    let pod = recorder(record.clone()).await;
    let fixture = Fixture::start(IngressConfig::default(), vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let mut requests = Vec::new();
    for text in corpus() {
        fixture.raw(text.as_bytes()).await;
        let connections = connections(&pod, &record).await.into_iter().map(|connection| connection.bytes);
        requests.extend(connections.filter(|bytes| whole_requests(&text, bytes) == 1));
    }
    let mut others = Vec::new();
    for server in &servers {
        let two = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(seen(two, &server.answers(two).await), Seen::Otherwise);
        let mut all = Vec::new();
        for request in &requests {
            let answers = server.answers(request).await;
            let seen = seen(request, &answers);
            if seen == Seen::Otherwise {
                others.push(format!("{}: {:?}: {answers:?}", server.name, String::from_utf8_lossy(request)));
            }
            all.push(seen);
        }
        let count = |kind| all.iter().filter(|seen| **seen == kind).count();
        println!(
            "{}: of {} exactly one {}, refused {}, otherwise {}",
            server.name,
            requests.len(),
            count(Seen::Exactly1),
            count(Seen::Refused),
            count(Seen::Otherwise)
        );
    }
    assert!(!requests.is_empty());
    assert!(others.is_empty(), "{}", others.join("\n"));
}
