//! Services that do not fit the cluster are refused.

use model::ids::NodeName;
use model::node::Resources;
use serde_json::{Value, json};
use testkit::fixtures;

use super::{Api, call};

const GIB: u64 = 1 << 30;

async fn register(api: &Api, name: &str) {
    let capacity =
        Resources { cpu_millis: 4_000, memory_bytes: 10 * GIB, pids: 1_000, disk_bytes: 0, pods: 10 };
    let name = NodeName::new(name).unwrap();
    let facts = fixtures::node_info(capacity);
    api.app.store.register(&name, &facts, fixtures::claimant(), None).await.unwrap();
}

fn service(fields: Value) -> String {
    let mut service = json!({"name": "web", "image": "nginx"});
    service.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    service.to_string()
}

#[tokio::test]
async fn twelve_of_ten_gigabytes_is_refused_with_the_document_and_nothing_is_stored() {
    let Some(api) = Api::start() else { return };
    register(&api, "a").await;
    let large = service(json!({"memory": "12G"}));
    let mut problem = api.post("/service", &large).await.problem(409, "insufficient-memory");
    problem.as_object_mut().unwrap().remove("request_id");
    let document = json!({
        "type": "/problems/insufficient-memory",
        "title": "Insufficient memory",
        "status": 409,
        "detail": "requires 12G of memory but only 10G can be allocated",
        "instance": "/service",
        "service": "web",
        "required": 12 * GIB,
        "allocatable": 10 * GIB,
        "nodes": [{"node": "a", "reason": "offers 10G of memory"}],
        "node_count": 1,
    });
    assert_eq!(problem, document);
    api.get("/service/web").await.problem(404, "service-not-found");

    api.post("/service?allow_partial=true", &large).await.expect(201);
    api.post("/service", &large).await.problem(409, "service-exists");
    api.post("/service?allow_partial=perhaps", &large).await.problem(400, "invalid-query");
    api.post("/service?allow_partail=true", &large).await.problem(400, "invalid-query");
}

#[tokio::test]
async fn a_dry_run_is_refused_for_what_the_write_is_and_writes_nothing() {
    let Some(api) = Api::start() else { return };
    register(&api, "a").await;
    let (large, small) = (service(json!({"memory": "12G"})), service(json!({"memory": "1G"})));
    api.post("/service?dry_run=true", &large).await.problem(409, "insufficient-memory");
    api.send("PUT", "/service/web?dry_run=true", &[], &large).await.problem(409, "insufficient-memory");
    for (method, path) in [("POST", "/service?dry_run=true"), ("PUT", "/service/web?dry_run=true")] {
        assert_eq!(api.send(method, path, &[], &small).await.status, 204);
    }
    api.get("/service/web").await.problem(404, "service-not-found");

    api.post("/service", &small).await.expect(201);
    let before = api.get("/service/web").await.json();
    api.post("/service?dry_run=true", &small).await.problem(409, "service-exists");
    let patch = json!({"image": "nginx:2", "replicas": 2}).to_string();
    assert_eq!(api.send("PATCH", "/service/web?dry_run=true", &[], &patch).await.status, 204);
    assert_eq!(api.post("/service/web/scale?dry_run=true", r#"{"replicas":2}"#).await.status, 204);
    let scaled = api.post("/service/web/scale?dry_run=true", r#"{"replicas":20}"#).await;
    scaled.problem(409, "insufficient-memory");
    api.post("/service/web/undo?dry_run=true", "").await.problem(409, "nothing-to-undo");
    let stale = api.send("PUT", "/service/web?dry_run=true", &[("if-match", "\"77\"")], &small).await;
    stale.problem(412, "generation-conflict");
    let job = json!({"kind": "job", "name": "web", "image": "nginx"}).to_string();
    api.send("PUT", "/service/web?dry_run=true", &[], &job).await.problem(409, "wrong-kind");
    assert_eq!(api.get("/service/web").await.json(), before);

    let job = |image: &str, fields: Value| {
        json!({"kind": "job", "name": "sums", "image": image, "job": fields}).to_string()
    };
    api.post("/service", &job("a", json!({}))).await.expect(201);
    for (job, expected) in [
        (job("a", json!({"parallelism": 1})), None),
        (job("a", json!({"backoff_limit": 2})), None),
        (job("b", json!({})), Some("job-immutable")),
        (job("a", json!({"completions": 2})), Some("job-immutable")),
    ] {
        let checked = api.send("PUT", "/service/sums?dry_run=true", &[], &job).await;
        match expected {
            Some(kind) => drop(checked.problem(409, kind)),
            None => assert_eq!(checked.status, 204, "{job}"),
        }
    }
}

#[tokio::test]
async fn every_write_that_asks_for_more_is_checked_and_no_other() {
    let Some(api) = Api::start() else { return };
    register(&api, "a").await;
    let two = service(json!({"cpus": 2, "replicas": 2}));
    api.post("/service", &two).await.expect(201);
    let () = api.redis.cli(&["HSET", "node:a", "used_cpu", "4000"]).await;
    let refused = [
        ("PUT", "/service/web", service(json!({"cpus": 2, "replicas": 3}))),
        ("PUT", "/service/web", service(json!({"cpus": 3, "replicas": 2}))),
        ("PATCH", "/service/web", json!({"replicas": 3}).to_string()),
        ("PATCH", "/service/web", json!({"cpus": 5}).to_string()),
        ("POST", "/service/web/scale", json!({"replicas": 3}).to_string()),
    ];
    let (_, router) = api.twin();
    for (method, path, body) in &refused {
        let problem = call(&router, method, path, &[], body).await.problem(409, "insufficient-cpu");
        assert_eq!(problem["service"], "web");
    }
    for (method, path, body) in [
        ("PUT", "/service/web", two.clone()),
        ("PATCH", "/service/web", json!({"image": "nginx:2"}).to_string()),
        ("PATCH", "/service/web", json!({"memory": "1G"}).to_string()),
        ("POST", "/service/web/scale", json!({"replicas": 1}).to_string()),
    ] {
        call(&router, method, path, &[], &body).await.expect(200);
    }
    for (method, path, body) in &refused {
        let path = format!("{path}?allow_partial=true");
        call(&router, method, &path, &[], body).await.expect(200);
    }
    let many = r#"{"name":"many","image":"nginx","replicas":50}"#;
    call(&router, "POST", "/service", &[], many).await.problem(409, "insufficient-slots");
    call(&router, "POST", "/service?allow_partial=true", &[], many).await.expect(201);
}

#[tokio::test]
async fn what_is_not_known_is_not_refused_and_a_node_that_joins_counts_at_once() {
    let Some(api) = Api::start() else { return };
    let large = |name: &str| service(json!({"name": name, "memory": "8G", "replicas": 2}));
    api.post("/service", &large("first")).await.expect(201);
    register(&api, "a").await;
    // The node view that admitted the first one may still be cached.
    let (_, router) = api.twin();
    call(&router, "POST", "/service", &[], &large("second")).await.problem(409, "insufficient-memory");
    register(&api, "b").await;
    super::eventually("the node counts", || async {
        let answer = call(&router, "POST", "/service", &[], &large("second")).await;
        testkit::eventually::check(answer.status == 201, || answer.text)
    })
    .await;
    // A node that cannot be read could have room.
    let () = api.redis.cli(&["HSET", "node:b", "memory", "much"]).await;
    let (_, router) = api.twin();
    call(&router, "POST", "/service", &[], &large("third")).await.expect(201);
}
