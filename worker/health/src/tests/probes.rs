//! Probes of real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use engine::sim::{SimOptions, SimRuntime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::judge::ProbeOutcome;
use crate::probe::{Prober, RuntimeProber};

async fn server(answer: Option<&'static str>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let _ = requests.send(String::from_utf8(head).unwrap());
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                None => open.push(stream),
            }
        }
    });
    (address, receiver)
}

async fn probe(address: SocketAddr, spec: &str, limit: Duration) -> ProbeOutcome {
    let spec = spec.replace("PORT", &address.port().to_string());
    let check: HealthCheck = serde_json::from_str(&spec).unwrap();
    let prober = RuntimeProber(Arc::new(SimRuntime::new(SimOptions::default())));
    prober.probe("handle", Some(address.ip()), &check.method().unwrap(), limit).await
}

fn failed(outcome: &ProbeOutcome) -> &str {
    match outcome {
        ProbeOutcome::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

const HTTP: &str = r#"{"http":{"port":PORT,"path":"/healthz?a=b","headers":{"X-Probe":"yes"}}}"#;

#[tokio::test]
async fn an_http_answer_counts_by_its_status() {
    for (answer, spec, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", HTTP, None),
        ("HTTP/1.0 204 No Content\r\n\r\n", HTTP, None),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", HTTP, None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nthe rest never comes", HTTP, None),
        ("HTTP/1.1 503 Sorry\r\nContent-Length: 0\r\n\r\n", HTTP, Some("answered 503, expected 200-399")),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            r#"{"http":{"port":PORT,"status":[204,401]}}"#,
            Some("answered 200, expected 204,401"),
        ),
        ("", HTTP, Some("connection closed before message completed")),
        ("SSH-2.0-OpenSSH_9\r\n", HTTP, Some("invalid HTTP version")),
    ] {
        let (address, _requests) = server(Some(answer)).await;
        let outcome = probe(address, spec, 10 * SECOND).await;
        let Some(expected) = expected else {
            assert_eq!(outcome, ProbeOutcome::Passed, "{answer}");
            continue;
        };
        let why = failed(&outcome);
        assert!(why.starts_with(&format!("GET http://{address}/")) && why.contains(expected), "{why}");
        assert!(!why.contains('\n'), "one line: {why}");
    }
}

#[tokio::test]
async fn a_request_has_what_was_asked_for_and_a_host() {
    let (address, mut requests) = server(Some("HTTP/1.1 200 OK\r\n\r\n")).await;
    assert_eq!(probe(address, HTTP, 10 * SECOND).await, ProbeOutcome::Passed);
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("GET /healthz?a=b HTTP/1.1\r\n"), "{request}");
    for header in [format!("host: {address}"), "x-probe: yes".to_owned(), "connection: close".to_owned()] {
        assert!(request.contains(&format!("{header}\r\n")), "{request}");
    }
    assert!(request.contains("user-agent: kubeleet/"), "{request}");
    let own = r#"{"http":{"port":PORT,"headers":{"Host":"shop.example","User-Agent":"me"}}}"#;
    assert_eq!(probe(address, own, 10 * SECOND).await, ProbeOutcome::Passed);
    let request = requests.recv().await.unwrap();
    assert!(
        request.contains("host: shop.example\r\n") && request.contains("user-agent: me\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn a_server_without_an_answer_fails_at_the_deadline() {
    let (address, _requests) = server(None).await;
    let begin = std::time::Instant::now();
    let outcome = probe(address, HTTP, Duration::from_millis(150)).await;
    if !matches!(outcome, ProbeOutcome::Inconclusive(_)) {
        assert!(failed(&outcome).ends_with("no answer within 150 ms"), "{outcome:?}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(150));
    assert_eq!(probe(address, r#"{"tcp":{"port":PORT}}"#, 10 * SECOND).await, ProbeOutcome::Passed);
}

#[tokio::test]
async fn a_closed_port_is_refused_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let http = probe(address, HTTP, 10 * SECOND).await;
    assert_eq!(failed(&http), format!("GET http://{address}/healthz?a=b: Connection refused"));
    let tcp = probe(address, r#"{"tcp":{"port":PORT}}"#, 10 * SECOND).await;
    assert_eq!(failed(&tcp), format!("connecting to {address}: Connection refused"));
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_worker_could_not_run_is_no_failure() {
    let (address, _requests) = server(None).await;
    let probing = tokio::spawn(probe(address, HTTP, Duration::from_millis(200)));
    tokio::task::yield_now().await;
    std::thread::sleep(Duration::from_millis(600));
    let outcome = probing.await.unwrap();
    let ProbeOutcome::Inconclusive(why) = &outcome else { panic!("{outcome:?}") };
    assert!(why.contains("too busy"), "{why}");
}

#[tokio::test]
async fn a_container_without_an_address_is_not_to_blame() {
    let prober = RuntimeProber(Arc::new(SimRuntime::new(SimOptions::default())));
    for spec in [r#"{"tcp":{"port":80}}"#, r#"{"http":{"port":80}}"#] {
        let check: HealthCheck = serde_json::from_str(spec).unwrap();
        let outcome = prober.probe("handle", None, &check.method().unwrap(), SECOND).await;
        assert!(matches!(outcome, ProbeOutcome::Inconclusive(_)), "{outcome:?}");
    }
}
