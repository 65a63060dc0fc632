//! TLS and Unix sockets.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::Value;
use testkit::ports::free_port;
use testkit::{Redis, need_redis};

use super::{eventually_set, get, link, set};
use crate::call::ScriptCall as Call;
use crate::error::StoreError;

/// False without openssl.
fn make_certificates(dir: &Path) -> bool {
    std::fs::write(dir.join("extensions"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let steps = [
        "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=authority -keyout ca-key.pem -out ca.pem",
        "req -new -newkey rsa:2048 -nodes -subj /CN=redis -keyout key.pem -out request.pem",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 1 \
         -extfile extensions -out cert.pem",
    ];
    steps.iter().all(|step| {
        let arguments = step.split(' ').filter(|argument| !argument.is_empty());
        let made = Command::new("openssl").args(arguments).current_dir(dir).stderr(Stdio::null()).status();
        made.is_ok_and(|status| status.success())
    })
}

/// `None` without openssl or TLS.
async fn start_tls_server() -> Option<(Redis, u16)> {
    let server = Redis::start().await;
    if !make_certificates(server.folder()) {
        eprintln!("SKIPPED (no openssl): the TLS test needs a certificate");
        return None;
    }
    let file = |name: &str| server.folder().join(name).display().to_string();
    let port = free_port();
    for (option, value) in [
        ("tls-cert-file", file("cert.pem")),
        ("tls-key-file", file("key.pem")),
        ("tls-ca-cert-file", file("ca.pem")),
        ("tls-auth-clients", "no".to_owned()),
        ("tls-port", port.to_string()),
    ] {
        if server.try_cli::<()>(&["CONFIG", "SET", option, &value]).await.is_err() {
            eprintln!("SKIPPED (no TLS): this redis-server was built without TLS");
            return None;
        }
    }
    Some((server, port))
}

#[tokio::test]
async fn tls_trusts_only_the_configured_authority() {
    need_redis!();
    let Some((server, port)) = start_tls_server().await else { return };
    let authority = server.folder().join("ca.pem").display().to_string();
    let url = format!("rediss://127.0.0.1:{port}");
    let trusting = link(&format!("{url}?ca={authority}"));
    eventually_set(&trusting, "a", "1").await;
    assert_eq!(get(&trusting, "a").await, Some(b"1".to_vec()));

    let error = set(&link(&url), "a", "2").await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable { why, .. } if why.contains("certificate")), "{error}");
    let error = set(&link(&format!("{url}?ca=/nowhere.pem")), "a", "2").await.unwrap_err();
    assert!(error.to_string().contains("/nowhere.pem cannot be read"), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_the_one_that_the_url_names() {
    need_redis!();
    let Some((server, port)) = start_tls_server().await else { return };
    server.cli::<()>(&["CONFIG", "SET", "tls-auth-clients", "yes"]).await;
    let file = |name: &str| server.folder().join(name).display().to_string();
    let url = format!("rediss://127.0.0.1:{port}?ca={}", file("ca.pem"));
    let error = set(&link(&url), "a", "1").await.unwrap_err().to_string();
    assert!(error.contains("tls-auth-clients no") && error.contains("?cert=FILE&key=FILE"), "{error}");
    let shown = link(&format!("{url}&cert={}&key={}", file("cert.pem"), file("key.pem")));
    eventually_set(&shown, "a", "1").await;
    let error = set(&link(&format!("redis://127.0.0.1:{port}")), "a", "2").await.unwrap_err().to_string();
    assert!(error.contains("write rediss://"), "{error}");
}

#[tokio::test]
async fn durable_writes_trust_the_authority_that_is_on_disk_now() {
    need_redis!();
    let Some((server, port)) = start_tls_server().await else { return };
    let other = server.folder().join("other");
    std::fs::create_dir(&other).unwrap();
    assert!(make_certificates(&other));
    let configured = server.folder().join("configured.pem");
    let trust = |dir: &Path| std::fs::copy(dir.join("ca.pem"), &configured).unwrap();
    trust(server.folder());
    let link = link(&format!("rediss://127.0.0.1:{port}?ca={}", configured.display()));
    eventually_set(&link, "a", "1").await;
    let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let call = Call::unnamed(script.key("n"));
    let write = async || link.durable_script(&call, Duration::from_millis(100)).await;
    assert_eq!(write().await.unwrap().0, Value::Int(1));

    std::fs::remove_file(&configured).unwrap();
    assert_eq!(write().await.unwrap().0, Value::Int(2), "an open connection stays in use");
    trust(&other);
    let error = write().await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable { why, .. } if why.contains("certificate")), "{error}");
    trust(server.folder());
    assert_eq!(write().await.unwrap().0, Value::Int(3));
}

#[tokio::test]
async fn a_unix_socket_works() {
    need_redis!();
    let socket = std::env::temp_dir().join(format!("kubeleet-{}.sock", uuid::Uuid::new_v4()));
    let _server = Redis::start_with(&["--unixsocket", &socket.display().to_string()]).await;
    let link = link(&format!("unix://{}?db=1", socket.display()));
    set(&link, "a", "1").await.unwrap();
    assert_eq!(get(&link, "a").await, Some(b"1".to_vec()));
}
