//! Growth is refused before Redis is full or the cluster too large.

use super::{Api, call};

const SCALE: &str = "/service/web/scale";

async fn fill(api: &Api, percent: u64) {
    // Large enough that a few connections do not matter.
    let () = api.redis.cli(&["SETRANGE", "filler", "33554432", "x"]).await;
    let used = api.app.store.memory().await.unwrap().used;
    let limit = (used * 100 / percent).to_string();
    let () = api.redis.cli(&["CONFIG", "SET", "maxmemory", &limit]).await;
}

fn service(name: &str, replicas: u32, image: &str) -> String {
    format!(r#"{{"name":"{name}","image":"{image}","replicas":{replicas}}}"#)
}

#[tokio::test]
async fn near_the_memory_limit_nothing_is_added_and_everything_can_shrink() {
    let Some(api) = Api::start() else { return };
    api.post("/service", &service("web", 3, "nginx")).await.expect(201);
    fill(&api, 85).await;
    let (_, router) = api.twin();
    let refused = [
        ("POST", "/service", service("other", 1, "nginx")),
        ("PUT", "/service/other", service("other", 1, "nginx")),
        ("PUT", "/service/web", service("web", 4, "nginx")),
        ("PATCH", "/service/web", r#"{"replicas":4}"#.to_owned()),
        ("POST", SCALE, r#"{"replicas":4}"#.to_owned()),
    ];
    for (method, path, body) in refused {
        let problem = call(&router, method, path, &[], &body).await.problem(507, "redis-memory");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("maxmemory") && detail.contains("80 %"), "{method}: {detail}");
    }
    for (method, path, body) in [
        ("PATCH", "/service/web", r#"{"labels":{"a":"b"}}"#.to_owned()),
        ("PUT", "/service/web", service("web", 2, "nginx")),
        ("POST", SCALE, r#"{"replicas":1}"#.to_owned()),
    ] {
        call(&router, method, path, &[], &body).await.expect(200);
    }
    let status = call(&router, "GET", "/status", &[], "").await.expect(200);
    assert_eq!(status["redis"]["memory"]["headroom_bytes"], 0);
    assert!(status["problems"].to_string().contains("of its maxmemory"), "{status}");
    call(&router, "DELETE", "/service/web", &[], "").await.expect(202);
}

#[tokio::test]
async fn a_request_whose_pods_would_fill_redis_is_refused() {
    let Some(api) = Api::start() else { return };
    fill(&api, 10).await;
    let problem = api.post("/service", &service("huge", 450_000, "nginx")).await.problem(507, "redis-memory");
    assert!(problem["detail"].as_str().unwrap().contains("would add about 527"), "{problem}");
    assert_eq!(api.redis.cli::<u64>(&["EXISTS", "service:huge"]).await, 0);
    api.post("/service", &service("small", 10, "nginx")).await.expect(201);
}

#[tokio::test]
async fn what_a_full_redis_refuses_is_the_same_problem() {
    let Some(api) = Api::start() else { return };
    api.post("/service", &service("web", 3, "nginx")).await.expect(201);
    let () = api.redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let patch = r#"{"image":"nginx:2"}"#;
    api.send("PATCH", "/service/web", &[], patch).await.problem(507, "redis-memory");
    api.post(SCALE, r#"{"replicas":2}"#).await.expect(200);
    api.delete("/service/web").await.expect(202);
}

#[tokio::test]
async fn the_cluster_grows_no_larger_than_its_settings() {
    let limits = [("KUBELEET_CLUSTER_MAX_SERVICES", "2"), ("KUBELEET_CLUSTER_MAX_PODS", "10")];
    let Some(api) = Api::start_with(&limits) else { return };
    api.post("/service", &service("a", 4, "nginx")).await.expect(201);
    let problem = api.post("/service", &service("b", 7, "nginx")).await.problem(403, "cluster-limit");
    assert!(problem["detail"].as_str().unwrap().contains("at most 10"), "{problem}");
    api.post("/service", &service("b", 6, "nginx")).await.expect(201);
    api.post("/service/b/scale", r#"{"replicas":7}"#).await.problem(403, "cluster-limit");
    let problem = api.post("/service", &service("c", 0, "nginx")).await.problem(403, "cluster-limit");
    assert!(problem["detail"].as_str().unwrap().contains("2 services"), "{problem}");
    api.post("/service/b/scale", r#"{"replicas":5}"#).await.expect(200);
}

#[tokio::test]
async fn metrics_show_how_full_redis_is() {
    let Some(api) = Api::start() else { return };
    let () = api.redis.cli(&["CONFIG", "SET", "maxmemory", "100mb"]).await;
    let text = api.get("/metrics").await.text;
    assert!(text.contains("kubeleet_redis_memory_limit_bytes 104857600"), "{text}");
    let headroom = text.lines().find_map(|line| line.strip_prefix("kubeleet_redis_memory_headroom_bytes "));
    let headroom: f64 = headroom.unwrap().parse().unwrap();
    assert!((50e6..84e6).contains(&headroom), "{headroom}");
}
