//! Outages: requests fail fast with a problem.

use std::time::{Duration, Instant};

use super::{Api, eventually};

#[tokio::test]
async fn without_redis_requests_fail_fast_with_503() {
    let Some(api) = Api::start() else { return };
    api.get("/service").await.expect(200);
    api.redis.kill();
    let started = Instant::now();
    for (method, path, body) in [
        ("POST", "/service", r#"{"name":"web","image":"nginx"}"#),
        ("GET", "/service", ""),
        ("GET", "/pod", ""),
        ("GET", "/event", ""),
    ] {
        let answer = api.send(method, path, &[], body).await;
        answer.problem(503, "redis-unavailable");
        assert_eq!(answer.header("retry-after"), "2");
    }
    assert!(started.elapsed() < crate::http::problem::REQUEST_TIMEOUT, "{:?}", started.elapsed());
    for (method, path, advice) in [
        ("GET", "/service", "; try again"),
        ("DELETE", "/service/web", "the change may or may not have been stored; the request can be repeated"),
        ("POST", "/service/web/undo", "undo and restart only with If-Match, run only with `job`"),
    ] {
        let problem = api.send(method, path, &[], "").await.problem(503, "redis-unavailable");
        assert!(problem["detail"].as_str().unwrap().ends_with(advice), "{problem}");
    }
    let ready = api.get("/readyz").await.problem(503, "redis-unavailable");
    assert_eq!(ready["errors"][0]["pointer"], "/redis");
    assert_eq!(api.get("/healthz").await.status, 200, "the process itself is healthy");
    let status = api.get("/status").await.expect(200);
    assert_eq!(status["redis"]["connected"], false);
    assert!(!status["redis"]["detail"].as_str().unwrap().is_empty(), "{status}");
    let metrics = api.get("/metrics").await.text;
    assert!(metrics.contains("kubeleet_redis_up 0"));
    assert!(metrics.contains("kubeleet_nodes{state=\"ready\"} NaN"), "an old value is a lie: {metrics}");

    api.redis.restart().await;
    eventually("it is ready again", || async { api.get("/readyz").await.status == 200 }).await;
    api.post("/service", r#"{"name":"web","image":"nginx"}"#).await.expect(201);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_refused() {
    let Some(api) = Api::start() else { return };
    tokio::time::pause();
    let never =
        axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = super::request("POST", "/service", &[], never);
    super::answer(&api.router, request).await.problem(408, "request-timeout");
    let broken = futures_util::stream::iter([Err::<Vec<u8>, _>(std::io::Error::other("cut"))]);
    let request = super::request("POST", "/service", &[], axum::body::Body::from_stream(broken));
    super::answer(&api.router, request).await.problem(400, "bad-request");
}

#[tokio::test]
async fn an_error_of_redis_is_not_shown_to_clients() {
    let Some(api) = Api::start() else { return };
    api.redis.cli::<()>(&["SET", "service:web", "oops"]).await;
    let problem = api.get("/service/web").await.problem(500, "broken-record");
    assert!(problem["detail"].as_str().unwrap().contains("service:web"), "{problem}");
    assert!(!problem.to_string().contains("WRONGTYPE"), "{problem}");
}

#[tokio::test]
async fn a_handler_that_panics_or_hangs_answers_a_problem() {
    use axum::routing::get;
    let panics = async || -> &'static str { panic!("a test of a panic") };
    let hangs = async || -> &'static str { std::future::pending().await };
    let router = axum::Router::new().route("/panics", get(panics)).route("/hangs", get(hangs));
    let router = crate::http::middleware::apply(router);
    super::call(&router, "GET", "/panics", &[], "").await.problem(500, "internal");
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let headers = [("x-request-id", "mine-1")];
    let request = super::request("GET", "/hangs", &headers, "");
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    let answer = super::Answer::read(response).await;
    assert_eq!(answer.problem(504, "timeout")["request_id"], "mine-1");
    assert!(started.elapsed() >= crate::http::problem::REQUEST_TIMEOUT - Duration::from_secs(1));
}

#[tokio::test]
async fn without_the_token_readiness_tells_no_address_and_no_error() {
    let Some(api) = Api::start_with(&[("KUBELEET_TOKEN", "s3cret")]) else { return };
    let token = [("authorization", "Bearer s3cret")];
    let warnings = |ready: serde_json::Value| ready["warnings"].as_array().unwrap().len();
    assert_eq!(warnings(api.get("/readyz").await.expect(200)), 0);
    assert_eq!(warnings(api.send("GET", "/readyz", &token, "").await.expect(200)), 1, "no scheduler");
    api.redis.kill();
    eventually("Redis is missed", || async { api.get("/readyz").await.status == 503 }).await;
    let bare = api.get("/readyz").await.problem(503, "redis-unavailable");
    assert!(bare["errors"].is_null() && !bare.to_string().contains("127.0.0.1"), "{bare}");
    let full = api.send("GET", "/readyz", &token, "").await.problem(503, "redis-unavailable");
    assert_eq!(full["errors"][0]["pointer"], "/redis");
}
