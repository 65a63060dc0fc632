//! The metrics of the API and of the cluster.

use model::value::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Api, call};
use crate::metrics::{MetricsServer, metrics_router};

#[tokio::test]
async fn an_api_serves_its_metrics_and_gauges_of_the_cluster() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"web","image":"nginx","replica":2}"#).await.expect(201);
    api.get("/service/web").await.expect(200);
    let metrics = api.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    for part in [
        "kubeleet_http_requests_total{method=\"GET\",route=\"/service/{name}\",status=\"200\"}",
        "kubeleet_http_request_duration_seconds_bucket{method=\"POST\",route=\"/service\",le=",
        "kubeleet_pods{phase=\"pending\"}",
        "kubeleet_queue_length{queue=\"waiting\"}",
        "kubeleet_nodes{state=\"ready\"}",
        "kubeleet_nodes_cordoned",
        "kubeleet_schedulers",
        "kubeleet_services",
        "kubeleet_services_unconfirmed",
        "kubeleet_redis_up",
    ] {
        assert!(metrics.text.contains(part), "{part} is missing:\n{}", metrics.text);
    }
}

/// Metrics with the labels whose values are plain words.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("kubeleet_") {
        let rest = &expression[at..];
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        let labels = rest[name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = labels.map(|(labels, _)| labels).unwrap_or_default().split(',');
        let words = labels.filter_map(|label| {
            let (name, value) = label.split_once("=~").or_else(|| label.split_once('='))?;
            let value = value.trim_matches('"');
            let is_plain = !name.ends_with('!') && value.chars().all(|c| is_word(c) || c == '|');
            is_plain.then(|| value.split('|').map(|word| format!("{name}=\"{word}\"")).collect::<Vec<_>>())
        });
        found.push((name, words.flatten().collect()));
    }
    found
}

/// The alert for dead letters once used a wrong queue name and could never fire.
#[tokio::test]
async fn every_documented_alert_has_its_series_and_a_row_that_says_what_to_do() {
    let Some(api) = Api::start() else { return };
    api.get("/service").await.expect(200);
    let metrics = api.get("/metrics").await.text;
    let page = include_str!("../../../docs/how-to/monitoring.md");
    let operations = include_str!("../../../docs/how-to/operations.md");
    let reference = include_str!("../../../docs/reference/metrics.md");
    let after = |prefix: &'static str| page.lines().filter_map(move |line| line.trim().strip_prefix(prefix));
    let mut checked = 0;
    for (name, labels) in after("expr: ").flat_map(selectors) {
        let row = format!("| `{name}` |");
        assert!(reference.contains(&row), "docs/reference/metrics.md does not have {name}");
        if reference.lines().any(|line| line.starts_with(&row) && line.contains("| proxy |")) {
            continue;
        }
        for label in labels.iter().map(String::as_str).chain([""]) {
            let has = |line: &str| line.starts_with(&name) && line.contains(label) && !line.starts_with('#');
            assert!(metrics.lines().any(has), "no series {name} with {label:?}:\n{metrics}");
            checked += 1;
        }
    }
    assert!(checked > 20, "the rules are found");
    for alert in after("- alert: ") {
        assert!(
            operations.contains(&format!("`{alert}`")),
            "docs/how-to/operations.md has no row for {alert}"
        );
    }
}

#[tokio::test]
async fn a_daemon_serves_its_metrics_with_the_access_control_of_the_api() {
    let (token, read_token) = (Secret::new("s3cret"), Secret::new("re4der"));
    let open = metrics_router(None, None);
    let closed = metrics_router(Some(&token), Some(&read_token));
    metrics::counter!("kubeleet_test_total").increment(1);
    let metrics = call(&open, "GET", "/metrics", &[], "").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    assert!(metrics.text.contains("kubeleet_test_total "), "{}", metrics.text);
    call(&open, "GET", "/metrics", &[("host", "rebound.example")], "").await.problem(403, "cross-origin");
    call(&open, "GET", "/service", &[], "").await.problem(404, "route-not-found");
    call(&closed, "GET", "/metrics", &[], "").await.problem(401, "unauthorized");
    assert_eq!(call(&closed, "GET", "/healthz", &[], "").await.text, "ok\n");
    for (token, status) in [("s3cret", 200), ("re4der", 200), ("another", 401)] {
        let with_token = [("authorization", &*format!("Bearer {token}"))];
        assert_eq!(call(&closed, "GET", "/metrics", &with_token, "").await.status, status, "{token}");
    }
    let read_only = metrics_router(None, Some(&read_token));
    call(&read_only, "GET", "/metrics", &[], "").await.problem(401, "unauthorized");
    let with_token = [("authorization", "Bearer re4der")];
    assert_eq!(call(&read_only, "GET", "/metrics", &with_token, "").await.status, 200);
}

#[tokio::test]
async fn a_metrics_server_ends_at_shutdown_and_does_not_share_its_address() {
    let server = MetricsServer::bind(([127, 0, 0, 1], 0).into(), None, None).await.unwrap();
    let address = server.address();
    assert!(MetricsServer::bind(address, None, None).await.is_err());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(server.run(shutdown.clone()));
    shutdown.cancel();
    tokio::time::timeout(super::LIMIT, running).await.expect("it ends").unwrap();
    assert!(TcpListener::bind(address).await.is_ok(), "the address is free again");
}
