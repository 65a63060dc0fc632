use axum::http::Method;
use serde_json::Value;

use super::Api;
use crate::router::{openapi, operations};

#[tokio::test]
async fn errors_have_one_shape() {
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
async fn a_token_is_asked_for() {
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
    for open in ["/healthz", "/readyz", "/openapi.json", "/docs/"] {
        assert_eq!(api.get(open).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn without_a_token_web_pages_stay_out() {
    let Some(api) = Api::start() else { return };
    let evil = [("origin", "https://evil.example"), ("host", "127.0.0.1:7070")];
    let body = r#"{"name":"web","image":"nginx"}"#;
    api.send("POST", "/service", &evil, body).await.problem(403, "cross-origin");
    api.send("GET", "/service", &[("host", "rebound.example")], "").await.problem(403, "cross-origin");
    api.get("/service/web").await.problem(404, "service-not-found");
}

#[tokio::test]
async fn the_document_lists_the_routes_there_are() {
    let Some(api) = Api::start() else { return };
    let document = api.get("/openapi.json").await.expect(200);
    let promised = [
        ("/service", "post"),
        ("/service", "get"),
        ("/service/{name}", "get"),
        ("/service/{name}", "put"),
        ("/service/{name}", "patch"),
        ("/service/{name}", "delete"),
        ("/service/{name}/scale", "post"),
        ("/pod", "get"),
        ("/pod/{uuid}", "get"),
        ("/pod/{uuid}", "delete"),
        ("/pod/{uuid}/log", "get"),
        ("/node", "get"),
        ("/node/{name}", "get"),
        ("/node/{name}/cordon", "post"),
        ("/node/{name}/uncordon", "post"),
        ("/queue", "get"),
        ("/queue/{key}", "get"),
        ("/queue/dq/{id}/requeue", "post"),
        ("/queue/dq/{id}", "delete"),
        ("/event", "get"),
        ("/status", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
        ("/", "get"),
    ];
    for (path, method) in promised {
        assert!(document["paths"][path][method].is_object(), "{method} {path} is not documented");
    }
    let mut count = 0;
    for (path, item) in &openapi().paths.paths {
        for (method, summary) in operations(item) {
            count += 1;
            let is_line = !summary.is_empty() && !summary.contains('\n');
            assert!(is_line, "{method} {path} says {summary:?} of itself");
            if path == "/event" {
                continue;
            }
            let path = path.replace("{id}", "x").replace(['{', '}'], "");
            let answer = api.send(method, &path, &[], "").await;
            assert_ne!(answer.status, 405, "{method} {path}");
            let lost = answer.status == 404 && answer.json()["type"] == "/problems/route-not-found";
            assert!(!lost, "{method} {path} is not routed");
        }
    }
    assert_eq!(count, promised.len());
}

#[tokio::test]
async fn all_references_of_the_document_resolve() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.push(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = serde_json::to_value(openapi()).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{}", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[tokio::test]
async fn the_index_and_the_page() {
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
async fn numbers_for_prometheus() {
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
        "kubeleet_services",
        "kubeleet_services_unconfirmed",
        "kubeleet_redis_up",
    ] {
        assert!(metrics.text.contains(part), "{part} is missing:\n{}", metrics.text);
    }
}

#[tokio::test]
async fn the_cluster_at_a_glance() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"web","image":"nginx","replica":2}"#).await.expect(201);
    let status = api.get("/status").await.expect(200);
    assert_eq!(status["redis"]["connected"], true);
    assert!(status["redis"]["master"].as_str().unwrap().contains("127.0.0.1"), "{status}");
    assert_eq!((&status["services"], &status["pods"]["pending"]), (&1.into(), &2.into()));
    assert_eq!(status["durability"]["state"], "single_machine");
    let problems = status["problems"].to_string();
    assert!(problems.contains("no scheduler") && problems.contains("no nodes"), "{problems}");
    let ready = api.get("/readyz").await.expect(200);
    assert!(ready["warnings"].to_string().contains("scheduler"), "{ready}");
    api.app.store.take(&common::ids::SchedulerId::random(), 1).await.unwrap();
    assert_eq!(api.get("/readyz").await.expect(200)["warnings"], serde_json::json!([]));
}
