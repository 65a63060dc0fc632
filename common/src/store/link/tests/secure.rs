//! TLS, and a socket file.

use std::path::Path;
use std::process::{Command, Stdio};

use super::super::super::error::StoreError;
use super::server::{Server, available, free_port};
use super::{eventually_set, get, link, set};

/// An authority and a certificate of it for 127.0.0.1; false when there is no openssl to make them.
fn make_certificates(dir: &Path) -> bool {
    std::fs::write(dir.join("extensions"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let steps = [
        "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=authority -keyout ca-key.pem -out ca.pem",
        "req -new -newkey rsa:2048 -nodes -subj /CN=redis -keyout key.pem -out request.pem",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 1 -extfile extensions -out cert.pem",
    ];
    steps.iter().all(|step| {
        let made =
            Command::new("openssl").args(step.split(' ')).current_dir(dir).stderr(Stdio::null()).status();
        made.is_ok_and(|status| status.success())
    })
}

#[tokio::test]
async fn tls_with_an_authority_of_our_own() {
    if !available() {
        return;
    }
    let plain = Server::start(&[]);
    if !make_certificates(&plain.dir) {
        eprintln!("SKIPPED (no openssl): the TLS test needs a certificate");
        return;
    }
    let file = |name: &str| plain.dir.join(name).display().to_string();
    let (authority, port) = (file("ca.pem"), free_port());
    for (option, value) in [
        ("tls-cert-file", file("cert.pem")),
        ("tls-key-file", file("key.pem")),
        ("tls-ca-cert-file", authority.clone()),
        ("tls-auth-clients", "no".to_owned()),
        ("tls-port", port.to_string()),
    ] {
        let done = plain.configure(option, &value);
        if !done {
            eprintln!("SKIPPED (no TLS): this redis-server was built without TLS");
            return;
        }
    }
    let url = format!("rediss://127.0.0.1:{port}");
    let trusting = link(&format!("{url}?ca={authority}"));
    eventually_set(&trusting, "a", "1").await;
    assert_eq!(get(&trusting, "a").await, Some(b"1".to_vec()));

    let error = set(&link(&url), "a", "2").await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable { why, .. } if why.contains("certificate")), "{error}");
    let error = set(&link(&format!("{url}?ca=/nowhere.pem")), "a", "2").await.unwrap_err();
    assert!(error.to_string().contains("/nowhere.pem can not be read"), "{error}");
}

#[tokio::test]
async fn a_socket_file() {
    if !available() {
        return;
    }
    let socket = std::env::temp_dir().join(format!("kubeleet-{}.sock", uuid::Uuid::new_v4()));
    let _server = Server::start(&["--unixsocket", &socket.display().to_string()]);
    let link = link(&format!("unix://{}?db=1", socket.display()));
    set(&link, "a", "1").await.unwrap();
    assert_eq!(get(&link, "a").await, Some(b"1".to_vec()));
}
