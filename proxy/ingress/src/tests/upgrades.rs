//! The upgrade of connections, and their end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{FakePod, Fixture, Pods, row, rule_with};
use crate::IngressConfig;

async fn agreeing_pod() -> FakePod {
    FakePod::with(0, async |mut stream: TcpStream| {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let text = String::from_utf8(head).unwrap().to_lowercase();
            if let Some((_, protocol)) =
                text.split_once("upgrade: ").filter(|_| text.contains("connection: upgrade"))
            {
                let protocol = protocol.lines().next().unwrap();
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.write_all(b"\x81\x05hello").await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                return;
            }
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await
}

async fn fixture_of(pods: Pods, pod: &FakePod, upgrade: &[&str]) -> Fixture {
    let upgrade = upgrade.iter().map(|name| (*name).to_owned()).collect();
    let rules = vec![rule_with(pod.port, |rule| rule.upgrade = upgrade)];
    let fixture = Fixture::start_with(pods, IngressConfig::default(), rules).await;
    fixture.set_only_pod("p");
    fixture
}

async fn ask(fixture: &Fixture, protocol: &str) -> TcpStream {
    let mut client = TcpStream::connect(fixture.address).await.unwrap();
    let head = format!("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client
}

async fn head_of_answer(client: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn only_websocket_and_what_the_rule_names_is_upgraded() {
    let pod = agreeing_pod().await;
    let fixture = fixture_of(Pods::OnThisHost, &pod, &["tcp"]).await;
    for (protocol, agreed) in [
        ("websocket", Some("websocket")),
        ("TCP", Some("tcp")),
        ("h2c, tcp", Some("tcp")),
        ("h2c", None),
        ("spdy/3.1", None),
    ] {
        let answer = head_of_answer(&mut ask(&fixture, protocol).await).await;
        match agreed {
            Some(agreed) => assert!(answer.contains(&format!("upgrade: {agreed}\r\n")), "{answer}"),
            None => assert!(answer.starts_with("HTTP/1.1 200"), "{protocol}: {answer}"),
        }
    }
}

/// Java's client and `curl --http2` offer it with each request, even with a body.
#[tokio::test]
async fn a_request_that_offers_http2_is_one_like_others() {
    let pod = FakePod::http1("p", 0, Duration::ZERO).await;
    let fixture = fixture_of(Pods::OnThisHost, &pod, &[]).await;
    let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let post = format!("POST /a HTTP/1.1\r\nHost: a\r\n{offer}Content-Length: 5\r\n\r\nhello");
    let answers = fixture.raw(post.repeat(2).as_bytes()).await;
    assert_eq!(answers.matches("p 5 POST /a").count(), 2, "{answers}");
    assert!(!answers.to_lowercase().contains("h2c") && !answers.contains("http2-settings"), "{answers}");
}

async fn a_websocket_that_is_cut_ends_with_a_close_frame(pods: Pods) {
    let pod = agreeing_pod().await;
    let fixture = fixture_of(pods, &pod, &["tcp"]).await;
    for (protocol, sent, expected) in [
        ("websocket", &b""[..], &b"\x88\x02\x03\xe9"[..]),
        // No close frame fits into the middle of another frame.
        ("websocket", b"\x81\x05hel", b""),
        ("websocket", b"\x88\x02\x03\xe8", b""),
        ("tcp", b"", b""),
    ] {
        fixture.set_only_pod("p");
        let mut client = ask(&fixture, protocol).await;
        assert!(head_of_answer(&mut client).await.starts_with("HTTP/1.1 101"));
        client.write_all(sent).await.unwrap();
        let mut seen = vec![0; 7 + sent.len()];
        client.read_exact(&mut seen).await.unwrap();
        let row = row("p");
        assert_eq!(fixture.gates.close(&row.pod, &row.assignment), 1);
        let drained = fixture.gates.drained(&row.pod, &row.assignment, Duration::ZERO).await;
        assert_eq!(drained.unwrap().cut, 1);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, expected, "{protocol} after {sent:?}");
    }
}

super::wherever_the_pod_is! {
    a_websocket_that_is_cut_ends_with_a_close_frame,
}
