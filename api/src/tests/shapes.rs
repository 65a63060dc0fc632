//! Shapes of answers that clients rely on.

use axum::http::Method;

use super::{Api, eventually};

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let Some(api) = Api::start() else { return };
    let lost = api.send("GET", "/nowhere", &[("x-request-id", "mine-1")], "").await;
    assert_eq!(lost.problem(404, "route-not-found")["request_id"], "mine-1");
    assert_eq!(lost.json()["instance"], "/nowhere");
    let wrong = api.delete("/service").await;
    wrong.problem(405, "method-not-allowed");
    assert!(wrong.header("allow").contains("GET") && wrong.header("allow").contains("POST"), "{wrong:?}");
    api.get("/service/%ff").await.problem(400, "bad-request");
    let fine = api.get("/healthz").await;
    assert_eq!((fine.status, fine.text.as_str()), (200, "ok\n"));
    assert!(!fine.header("x-request-id").is_empty());
}

#[tokio::test]
async fn a_configured_token_is_required() {
    let Some(api) = Api::start_with(&[("KUBELEET_TOKEN", "s3cret")]) else { return };
    let refused = api.get("/service").await;
    refused.problem(401, "unauthorized");
    assert!(refused.header("www-authenticate").starts_with("Bearer"), "{refused:?}");
    let with = |token: &'static str| [("authorization", token)];
    api.send("GET", "/service", &with("Bearer wrong"), "").await.problem(401, "unauthorized");
    api.send("GET", "/service", &with("Bearer s3cret"), "").await.expect(200);
    for closed in ["/metrics", "/", "/event", "/nowhere"] {
        api.get(closed).await.problem(401, "unauthorized");
    }
    for open in [
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/docs/",
        "/problems",
        "/problems/unauthorized",
        "/schema/service",
    ] {
        assert_eq!(api.get(open).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn the_token_that_may_only_read_gets_no_backup_and_no_channel() {
    let tokens = [("KUBELEET_TOKEN", "s3cret"), ("KUBELEET_READ_TOKEN", "re4der")];
    let Some(api) = Api::start_with(&tokens) else { return };
    let (all, read) = ([("authorization", "Bearer s3cret")], [("authorization", "Bearer re4der")]);
    for path in ["/service", "/status", "/secret", "/metrics"] {
        assert_eq!(api.send("GET", path, &read, "").await.status, 200, "{path}");
    }
    api.send("GET", "/cluster/backup", &all, "").await.expect(409);
    for path in ["/cluster/backup", "/cluster/%62ackup", "/cluster/backup/", "/pod/x/channel", "/nowhere"] {
        api.send("GET", path, &read, "").await.problem(403, "read-only");
    }
    api.send("DELETE", "/service/web", &read, "").await.problem(403, "read-only");
}

#[tokio::test]
async fn without_a_token_web_pages_of_other_sites_are_refused() {
    let Some(api) = Api::start() else { return };
    let evil = [("origin", "https://evil.example"), ("host", "127.0.0.1:7070")];
    let body = r#"{"name":"web","image":"nginx"}"#;
    api.send("POST", "/service", &evil, body).await.problem(403, "cross-origin");
    api.send("GET", "/service", &[("host", "rebound.example")], "").await.problem(403, "cross-origin");
    api.get("/service/web").await.problem(404, "service-not-found");
}

#[tokio::test]
async fn the_routes_are_listed_and_documented() {
    let Some(api) = Api::start() else { return };
    let index = api.get("/").await;
    assert!(
        index.text.contains("POST   /service") && index.text.contains("/pod/{uuid}/log"),
        "{}",
        index.text
    );
    let page = api.get("/docs/").await;
    assert!(page.text.contains("swagger-ui"), "{}", page.text);
    let script = api.get("/docs/swagger-ui-bundle.js").await;
    assert_eq!(script.status, 200, "the page needs no network");
    assert_eq!(api.send(Method::HEAD.as_str(), "/service", &[], "").await.status, 200);
}

#[tokio::test]
async fn the_status_shows_the_cluster_and_its_problems() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"web","image":"nginx","replica":2}"#).await.expect(201);
    let status = api.get("/status").await.expect(200);
    assert_eq!(status["redis"]["connected"], true);
    assert!(status["redis"]["master"].as_str().unwrap().contains("127.0.0.1"), "{status}");
    assert_eq!((&status["services"], &status["pods"]["pending"]), (&1.into(), &2.into()));
    assert_eq!(status["durability"]["state"], "single_machine");
    let problems = status["problems"].to_string();
    assert!(problems.contains("no scheduler") && problems.contains("no nodes"), "{problems}");
    assert_eq!(status["pause"], serde_json::Value::Null);
    api.redis.cli::<u64>(&["HSET", "meta", "changed_at", "9999999999999"]).await;
    let pause = &api.get("/status").await.expect(200)["pause"];
    assert_eq!((&pause["no_deaths_for_seconds"], &pause["no_starts_for_seconds"]), (&20.into(), &15.into()));
    let ready = api.get("/readyz").await.expect(200);
    assert!(ready["warnings"].to_string().contains("scheduler"), "{ready}");
    api.app.store.take(&model::ids::SchedulerId::random(), 1).await.unwrap();
    eventually("a scheduler is alive", || async {
        api.get("/readyz").await.expect(200)["warnings"] == serde_json::json!([])
    })
    .await;
}
