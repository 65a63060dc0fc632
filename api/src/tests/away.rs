use std::time::{Duration, Instant};

use super::{Api, until};

#[tokio::test]
async fn without_redis_the_api_says_so() {
    let Some(mut api) = Api::start() else { return };
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
    assert!(started.elapsed() < crate::around::LIMIT, "{:?}", started.elapsed());
    let ready = api.get("/readyz").await.problem(503, "redis-unavailable");
    assert_eq!(ready["errors"][0]["pointer"], "/redis");
    assert_eq!(api.get("/healthz").await.status, 200, "the process itself is well");
    let status = api.get("/status").await.expect(200);
    assert_eq!(status["redis"]["connected"], false);
    assert!(!status["redis"]["detail"].as_str().unwrap().is_empty(), "{status}");
    assert!(api.get("/metrics").await.text.contains("kubeleet_redis_up 0"));

    api.redis.restart();
    until("it is ready again", || async { api.get("/readyz").await.status == 200 }).await;
    api.post("/service", r#"{"name":"web","image":"nginx"}"#).await.expect(201);
}

#[tokio::test]
async fn a_body_must_arrive() {
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
async fn a_key_that_somebody_else_wrote_is_no_secret_told() {
    let Some(api) = Api::start() else { return };
    api.redis.run(&["SET", "services", "oops"]);
    let problem = api.get("/service").await.problem(500, "internal");
    assert!(!problem.to_string().contains("WRONGTYPE"), "{problem}");
}

#[tokio::test]
async fn a_handler_that_breaks_or_hangs() {
    use axum::routing::get;
    let breaks = async || -> &'static str { panic!("a test of what happens then") };
    let hangs = async || -> &'static str { std::future::pending().await };
    let router = axum::Router::new().route("/breaks", get(breaks)).route("/hangs", get(hangs));
    let router = router.layer(axum::middleware::from_fn(crate::around::around));
    super::call(&router, "GET", "/breaks", &[], "").await.problem(500, "internal");
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let hanging = tower::ServiceExt::oneshot(router, super::request("GET", "/hangs", &[], ""));
    assert_eq!(hanging.await.unwrap().status(), 504);
    assert!(started.elapsed() >= crate::around::LIMIT - Duration::from_secs(1));
}
