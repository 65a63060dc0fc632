//! Compares the OpenAPI document with the routes and their answers.

use std::collections::BTreeSet;

use api_types::ServiceView;
use model::spec::{PodSpec, ServiceFields};
use serde_json::Value;

use super::Api;
use super::values::start_with_key;

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            found.push((path.clone(), method.to_uppercase(), operation.clone()));
        }
    }
    found
}

#[tokio::test]
async fn the_document_lists_the_routes_there_are() {
    let Some(api) = Api::start() else { return };
    let document = api.get("/openapi.json").await.expect(200);
    let contract = [
        ("/service", "post"),
        ("/service", "get"),
        ("/service/{name}", "get"),
        ("/service/{name}", "put"),
        ("/service/{name}", "patch"),
        ("/service/{name}", "delete"),
        ("/service/{name}/scale", "post"),
        ("/service/{name}/restart", "post"),
        ("/service/{name}/history", "get"),
        ("/service/{name}/undo", "post"),
        ("/service/{name}/pause", "post"),
        ("/service/{name}/promote", "post"),
        ("/service/{name}/resume", "post"),
        ("/pod", "get"),
        ("/pod/{uuid}", "get"),
        ("/pod/{uuid}", "delete"),
        ("/pod/{uuid}/log", "get"),
        ("/pod/{uuid}/why", "get"),
        ("/node", "get"),
        ("/node/{name}", "get"),
        ("/node/{name}/cordon", "post"),
        ("/node/{name}/uncordon", "post"),
        ("/node/{name}/labels", "patch"),
        ("/node/{name}/drain", "get"),
        ("/node/{name}/drain", "post"),
        ("/plan", "post"),
        ("/rebalance", "post"),
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
    for (path, method) in contract {
        assert!(document["paths"][path][method].is_object(), "{method} {path} is not documented");
    }
    let operations = operations(&document);
    for (path, method, operation) in &operations {
        let summary = operation["summary"].as_str().unwrap_or_default();
        let is_line = !summary.is_empty() && !summary.contains('\n');
        assert!(is_line, "{method} {path} has the summary {summary:?}");
        if path == "/event" {
            continue;
        }
        let path = path.replace("{id}", "x").replace("{slug}", "internal").replace(['{', '}'], "");
        let answer = api.send(method, &path, &[], "").await;
        assert_ne!(answer.status, 405, "{method} {path}");
        let is_unrouted = answer.status == 404 && answer.json()["type"] == "/problems/route-not-found";
        assert!(!is_unrouted, "{method} {path} is not routed");
    }
    assert!(operations.len() >= contract.len());
}

#[tokio::test]
async fn an_outage_is_described_with_what_a_repeated_request_does() {
    let Some(api) = Api::start() else { return };
    let document = api.get("/openapi.json").await.expect(200);
    for (method, text) in [("get", "try again"), ("put", "can be repeated"), ("post", "only with If-Match")] {
        let path = if method == "post" { "/service/{name}/restart" } else { "/service/{name}" };
        for status in ["503", "504"] {
            let description = &document["paths"][path][method]["responses"][status]["description"];
            assert!(description.as_str().unwrap().contains(text), "{method} {status}: {description}");
        }
    }
}

#[tokio::test]
async fn every_operation_has_an_id_and_describes_all_its_responses() {
    let Some(api) = Api::start() else { return };
    let document = api.get("/openapi.json").await.expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        assert!(id.contains('_'), "{method} {path} has the operation id {id:?}");
        assert!(ids.insert(id.clone()), "the operation id {id} is not unique");
        let responses = operation["responses"].as_object().unwrap();
        for (status, response) in responses {
            let description = response["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{id}: the response {status} has no description");
            let is_error = status.starts_with(['4', '5']);
            let has_problem = response["content"]["application/problem+json"].is_object();
            assert_eq!(is_error, has_problem, "{id}: {status}");
        }
        let is_public = operation["security"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(!is_public, responses.contains_key("401"), "{id}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["schema"].is_object(), "{id}: {parameter}");
        }
    }
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
    let Some(api) = Api::start() else { return };
    let document = api.get("/openapi.json").await.expect(200);
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{}", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[tokio::test]
async fn a_service_has_the_fields_of_its_document_and_those_that_the_api_sets() {
    let Some(api) = Api::start() else { return };
    let openapi = api.get("/openapi.json").await.expect(200);
    let schemas = &openapi["components"]["schemas"];
    let names = |schema: &str| -> BTreeSet<String> {
        schemas[schema]["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let of_server = ServiceView::SERVER_FIELDS.map(str::to_owned).into();
    let of_view = names("ServiceView");
    assert_eq!(&of_view - &names("ServiceInput"), of_server);
    let of_document = [document::field_names::<ServiceFields>(), document::field_names::<PodSpec>()].concat();
    assert!(of_document.iter().all(|name| of_view.contains(*name)), "{of_view:?}");
}

#[tokio::test]
async fn every_example_of_a_body_is_accepted() {
    let Some(api) = start_with_key() else { return };
    let document = api.get("/openapi.json").await.expect(200);
    let mut count = 0;
    for (path, method, operation) in operations(&document) {
        let bodies = operation["requestBody"]["content"].as_object().cloned().unwrap_or_default();
        for (content_type, media_type) in bodies {
            if ["application/x-ndjson", "application/octet-stream"].contains(&content_type.as_str()) {
                continue;
            }
            // `POST /service` creates; the other operations change an existing service.
            api.redis.cli::<()>(&["FLUSHALL"]).await;
            if path != "/service" {
                api.post("/service", r#"{"name":"web","image":"nginx"}"#).await.expect(201);
            }
            for kind in
                ["secret", "config"].into_iter().filter(|kind| path.starts_with(&format!("/{kind}/{{name}}")))
            {
                api.post(&format!("/{kind}"), r#"{"name":"web","value":"x"}"#).await.expect(201);
            }
            let example = media_type["example"].to_string();
            let mut name = "web";
            if path.starts_with("/volume/") {
                name = "web_data_0";
                api.redis.cli::<()>(&["HSET", "volumes:copies", "web_data_0 w1", "1 - 0"]).await;
            }
            if path.starts_with("/node/") {
                api.redis.cli::<()>(&["HSET", "node:web", "state", "alive"]).await;
            }
            let target = path.replace("{name}", name).replace("{host}", "registry.example");
            let answer = api.send(&method, &target, &[("content-type", &content_type)], &example).await;
            assert!(answer.status < 300, "{method} {path} {content_type} {example}: {answer:?}");
            count += 1;
        }
    }
    assert!(count >= 8, "{count}");
}

#[tokio::test]
async fn the_type_of_a_problem_resolves_to_its_explanation() {
    let Some(api) = Api::start() else { return };
    let problem = api.get("/service/none").await.problem(404, "service-not-found");
    let page = api.get(problem["type"].as_str().unwrap()).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/markdown; charset=utf-8"));
    assert!(page.text.starts_with("# `/problems/service-not-found`"), "{}", page.text);
    assert!(!page.text.contains("/problems/pod-not-found"), "{}", page.text);
    assert!(api.get("/problems").await.text.contains("/problems/pod-not-found"));
    api.get("/problems/none").await.problem(404, "route-not-found");
}
