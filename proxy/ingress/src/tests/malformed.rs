//! 200 malformed and odd requests: each is refused, or reaches the pod as exactly one.

use std::net::Ipv4Addr;
use std::sync::Arc;

use model::network::ingress::HttpProtocol;
use parking_lot::Mutex;
use testkit::eventually;
use testkit::eventually::check;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{FakePod, Fixture, rule};
use crate::IngressConfig;
use crate::client::framing::Scanner;
use crate::scanner::FramingState;

pub(super) type Record = Arc<Mutex<Vec<Connection>>>;

#[derive(Default)]
pub(super) struct Connection {
    pub(super) bytes: Vec<u8>,
    has_ended: bool,
}

pub(super) async fn recorder(record: Record) -> FakePod {
    FakePod::with(0, move |mut stream: TcpStream| {
        let record = record.clone();
        async move {
            let index = {
                let mut record = record.lock();
                record.push(Connection::default());
                record.len() - 1
            };
            let mut bytes = [0; 16 * 1024];
            let mut scanner = Scanner::default();
            while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                record.lock()[index].bytes.extend_from_slice(&bytes[..length]);
                let _ = scanner.feed(&bytes[..length]);
                if scanner.state() == FramingState::Between {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                    let _ = stream.write_all(answer).await;
                    break;
                }
            }
            record.lock()[index].has_ended = true;
        }
    })
    .await
}

pub(super) async fn connections(pod: &FakePod, record: &Record) -> Vec<Connection> {
    // Accepted after all connections of the ingress.
    let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, pod.port)).await.unwrap();
    last.write_all(b"last").await.unwrap();
    drop(last);
    eventually("the pod's connections have ended", || async {
        let connections = record.lock();
        let is_last_there = connections.iter().any(|connection| connection.bytes == b"last");
        let have_ended = connections.iter().all(|connection| connection.has_ended);
        check(is_last_there && have_ended, || format!("{} connections", connections.len()))
    })
    .await;
    let mut connections = std::mem::take(&mut *record.lock());
    connections.retain(|connection| connection.bytes != b"last");
    connections
}

/// Each with and without a body that would be a second request.
const FRAMING: [&str; 40] = [
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5, 6",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: 5;",
    "Content-Length: ",
    "Content-Length: 99999999999999999999",
    "Content-Length : 5",
    "Content-Length\t: 5",
    " Content-Length: 5",
    "Content_Length: 5",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunkedx",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding:\x0cchunked",
    "Transfer-Encoding: chunked\x00",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding:",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\x0b: chunked",
    "X: y\r\n Transfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\x00\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding:\r\n chunked",
    "\r\nTransfer-Encoding: chunked",
];

const HEADS: [&str; 40] = [
    "GET /\r\n",
    "GET\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n",
    "\nGET / HTTP/1.1\r\nHost: a\r\n",
    " GET / HTTP/1.1\r\nHost: a\r\n",
    "GET  / HTTP/1.1\r\nHost: a\r\n",
    "GET /  HTTP/1.1\r\nHost: a\r\n",
    "GET\t/\tHTTP/1.1\r\nHost: a\r\n",
    "GET / HTTP/1.1 \r\nHost: a\r\n",
    "GET / HTTP/1.2\r\nHost: a\r\n",
    "GET / HTTP/0.9\r\nHost: a\r\n",
    "GET / HTTP/2.0\r\nHost: a\r\n",
    "GET / http/1.1\r\nHost: a\r\n",
    "GET / HTTP/11\r\nHost: a\r\n",
    "GET / HTTP/1.1\nHost: a\r\n",
    "GET / HTTP/1.1\rHost: a\r\n",
    "GET /a b HTTP/1.1\r\nHost: a\r\n",
    "GET /\x01 HTTP/1.1\r\nHost: a\r\n",
    "GET /\x7f HTTP/1.1\r\nHost: a\r\n",
    "GET /é HTTP/1.1\r\nHost: a\r\n",
    "GET /#a HTTP/1.1\r\nHost: a\r\n",
    "GET a HTTP/1.1\r\nHost: a\r\n",
    "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n",
    "GET http://b/ HTTP/1.1\r\nHost: a\r\n",
    "GET http://a@b/ HTTP/1.1\r\nHost: a@b\r\n",
    "GET http://a:80/ HTTP/1.1\r\nHost: a\r\n",
    "GET http:// HTTP/1.1\r\nHost: a\r\n",
    "G(T / HTTP/1.1\r\nHost: a\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n",
    "PRI * HTTP/1.1\r\nHost: a\r\n",
    "GET / HTTP/1.1\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
    "GET / HTTP/1.1\r\nHost:\r\n",
    "GET / HTTP/1.1\r\nHost: a b\r\n",
    "GET / HTTP/1.1\r\nHost: a/b\r\n",
    "GET / HTTP/1.1\r\nHost: a, b\r\n",
    "GET / HTTP/1.1\r\nHost : a\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n",
];

const CHUNKS: [&str; 40] = [
    "5\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    "5;\r\nhello\r\n0\r\n\r\n",
    "5;a\r\nhello\r\n0\r\n\r\n",
    "5;a=\"b\"\r\nhello\r\n0\r\n\r\n",
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5;a\rb\r\nhello\r\n0\r\n\r\n",
    "5;\x00\r\nhello\r\n0\r\n\r\n",
    "5 ;a\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r0\r\n\r\n",
    "5\r\nhellooo\r\n0\r\n\r\n",
    "5\r\nhell\r\n0\r\n\r\n",
    "5\r\nhello\r\n\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\n\r\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhello\r\n00000000\r\n\r\n",
    "00000000000000000005\r\nhello\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "g\r\nhello\r\n0\r\n\r\n",
    "\r\nhello\r\n0\r\n\r\n",
    "5h\r\nhello\r\n0\r\n\r\n",
    "5,5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "5\r\nhello\r\n0\r\nHost: b\r\n\r\n",
    "5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
    "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
    "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: y\n\r\n",
    "5\r\nhello\r\n0\r\nX\r\n\r\n",
    "A\r\nhellohello\r\n0\r\n\r\n",
    "5\r\nhello\r\n",
];

pub(super) fn corpus() -> Vec<String> {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let framing = FRAMING.iter().flat_map(|lines| {
        ["1.1", "1.0"].into_iter().flat_map(move |version| {
            let head = format!("POST / HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n");
            [format!("{head}0\r\n\r\n{smuggled}")]
        })
    });
    let heads = HEADS.iter().map(|head| format!("{head}\r\n"));
    let chunks = CHUNKS.iter().flat_map(|body| {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        [format!("{head}{body}"), format!("{head}{body}{smuggled}")]
    });
    framing.chain(heads).chain(chunks).collect()
}

#[tokio::test]
async fn a_malformed_request_is_refused_or_reaches_the_pod_as_exactly_one() {
    let record = Record::default();
    let pod = recorder(record.clone()).await;
    let fixture = Fixture::start(IngressConfig::default(), vec![rule(pod.port, HttpProtocol::Http)]).await;
    fixture.set_only_pod("p");
    let corpus = corpus();
    assert_eq!(corpus.len(), 200);
    let (mut refused, mut forwarded) = (0, 0);
    for text in corpus {
        let answer = fixture.raw(text.as_bytes()).await;
        let connections = connections(&pod, &record).await;
        let heads = connections.iter().map(|one| whole_requests(&text, &one.bytes)).sum::<usize>();
        let has_second = text.contains("/smuggled");
        let refusals = answer.matches("HTTP/1.1 400").count() + answer.matches("HTTP/1.0 400").count();
        match (heads, refusals) {
            (0, 1) => refused += 1,
            // The first one was well-formed. The rest is a request of its own, or is refused.
            (1, 0 | 1) => forwarded += 1,
            (2, 0) if has_second && is_well_formed(&text) => forwarded += 1,
            other => panic!("{text:?}: {other:?} (requests at the pod, refusals); answer {answer:?}"),
        }
    }
    println!("{refused} refused, {forwarded} forwarded");
    assert!(refused > 150);
}

fn is_well_formed(text: &str) -> bool {
    Scanner::default().feed(text.as_bytes()).is_ok()
}

/// A refused body leaves one without an end.
pub(super) fn whole_requests(text: &str, bytes: &[u8]) -> usize {
    let mut scanner = Scanner::default();
    let heads = scanner.feed(bytes).unwrap_or_else(|(at, why)| panic!("{text:?}: at {at}: {why}"));
    assert!(heads <= 1, "{text:?}");
    if scanner.state() == FramingState::Between { heads } else { 0 }
}
