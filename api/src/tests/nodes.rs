//! Nodes: states, cordoning, and external workers.

use super::Api;

pub(super) fn register(api: &Api, name: &str, kind: &str, beat_ago_ms: i64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let beat = (now - beat_ago_ms).to_string();
    api.redis.blocking_cli::<()>(&[
        "HSET",
        &format!("node:{name}"),
        "name",
        name,
        "kind",
        kind,
        "state",
        "alive",
        "incarnation",
        "i1",
        "beat",
        &beat,
        "registered_at",
        &beat,
        "labels",
        "{\"zone\":\"a\"}",
        "cpu",
        "4000",
        "memory",
        "1000",
        "max_pods",
        "10",
        "runtime",
        "sim",
        "engine_version",
        "sim 1",
        "engine_id",
        "A1B2",
        "version",
        "0.1.0",
    ]);
    api.redis.blocking_cli::<()>(&["SADD", "nodes", name]);
}

#[tokio::test]
async fn a_scheduler_that_fell_silent_is_named_and_one_that_ended_is_not() {
    let Some(api) = Api::start() else { return };
    let now = api.app.store.redis_now().await.unwrap();
    for (id, ago) in [("lives", 1_000), ("silent", 9_000), ("ended", 3_540_000)] {
        let at = (now - ago).to_string();
        let _: u64 = api.redis.cli(&["ZADD", "schedulers", &at, id]).await;
    }
    let status = api.get("/status").await.json();
    assert_eq!(status["schedulers"], 1);
    let problems: Vec<&str> =
        status["problems"].as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
    let of_schedulers: Vec<&&str> = problems.iter().filter(|line| line.starts_with("scheduler")).collect();
    assert!(
        of_schedulers.len() == 1 && of_schedulers[0].starts_with("scheduler silent has been silent for"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn nodes_are_shown_with_their_state() {
    let Some(api) = Api::start() else { return };
    register(&api, "worker1", "", 0);
    register(&api, "worker2", "guest", 60_000);
    api.redis.cli::<()>(&["LPUSH", "pq:worker1", "x", "y"]).await;
    let list = api.get("/node").await.expect(200);
    let (one, two) = (&list["items"][0], &list["items"][1]);
    assert_eq!(
        (&one["name"], &one["ready"], &one["fenceable"]),
        (&"worker1".into(), &true.into(), &true.into())
    );
    assert_eq!(one["engine_id"], "A1B2", "the engine that has the data of its volumes");
    assert_eq!((&one["queues"]["pending"], &one["labels"]["zone"]), (&2.into(), &"a".into()));
    assert_eq!(
        (&two["kind"], &two["ready"], &two["fenceable"]),
        (&"guest".into(), &false.into(), &false.into())
    );
    let page = api.get("/node?limit=1").await.expect(200);
    assert_eq!(page["next"], "worker1");
    let rest = api.get("/node?limit=1&after=worker1").await.expect(200);
    assert_eq!((&rest["items"][0]["name"], rest.get("next")), (&"worker2".into(), None));
    api.redis.blocking_cli::<()>(&["HSET", "node:worker1", "engine_problem", "no space left"]);
    let unhealthy = api.get("/node/worker1").await.expect(200);
    assert_eq!((&unhealthy["ready"], &unhealthy["engine_problem"]), (&false.into(), &"no space left".into()));
    let problems = api.get("/status").await.expect(200)["problems"].to_string();
    assert!(problems.contains("no space left") && problems.contains("worker2 has been silent"), "{problems}");
}

#[tokio::test]
async fn a_node_is_cordoned_and_uncordoned() {
    let Some(api) = Api::start() else { return };
    register(&api, "worker1", "", 0);
    assert_eq!(api.post("/node/worker1/cordon", "").await.expect(200)["cordoned"], true);
    assert_eq!(api.post("/node/worker1/cordon", "").await.expect(200)["cordoned"], true);
    assert_eq!(api.get("/status").await.expect(200)["nodes"]["cordoned"], 1);
    assert_eq!(api.post("/node/worker1/uncordon", "").await.expect(200)["cordoned"], false);
    api.post("/node/none/cordon", "").await.problem(404, "node-not-found");
    api.get("/node/none").await.problem(404, "node-not-found");
    api.get("/node/-bad").await.problem(404, "node-not-found");
}

#[tokio::test]
async fn a_drain_is_planned_ordered_and_ended() {
    let Some(api) = Api::start() else { return };
    register(&api, "worker1", "", 0);
    let plan = api.get("/node/worker1/drain").await.expect(200);
    assert_eq!(plan, serde_json::json!({"node": "worker1", "order": null, "pods": []}));
    let order = api.post("/node/worker1/drain", "").await.expect(200)["order"].clone();
    assert_eq!((order["since"].is_string(), &order["deadline"]), (true, &serde_json::Value::Null));
    assert_eq!(api.get("/node/worker1").await.expect(200)["cordoned"], true);
    let again = api.post("/node/worker1/drain", "").await.expect(200)["order"].clone();
    assert_eq!(again, order, "the same order");
    let timed = api.post("/node/worker1/drain?deadline=600&stop_bound=true", "").await.expect(200);
    assert!(timed["order"]["deadline"].is_string(), "{timed}");
    assert_eq!(api.get("/node/worker1").await.expect(200)["drain"], timed["order"]);
    for wrong in ["deadline=soon", "deadline=-1", "force=true"] {
        api.post(&format!("/node/worker1/drain?{wrong}"), "").await.problem(400, "invalid-query");
    }
    let ended = api.post("/node/worker1/uncordon", "").await.expect(200);
    assert_eq!((&ended["cordoned"], &ended["drain"]), (&false.into(), &serde_json::Value::Null));
    api.post("/node/none/drain", "").await.problem(404, "node-not-found");
    api.get("/node/none/drain").await.problem(404, "node-not-found");
}

#[tokio::test]
async fn labels_of_a_node_are_set_and_removed_by_a_patch() {
    let Some(api) = Api::start() else { return };
    register(&api, "worker1", "", 0);
    let patch = async |body: &str| api.send("PATCH", "/node/worker1/labels", &[], body).await;
    for _ in 0..2 {
        let node = patch(r#"{"disk":"ssd","zone":null}"#).await.expect(200);
        assert_eq!(node["labels"], serde_json::json!({"disk": "ssd"}));
    }
    assert_eq!(api.get("/node/worker1").await.expect(200)["labels"]["disk"], "ssd");
    let yaml = [("content-type", "application/yaml")];
    let node = api.send("PATCH", "/node/worker1/labels", &yaml, "zone: b\ndisk: ~\n").await.expect(200);
    assert_eq!(node["labels"], serde_json::json!({"zone": "b"}));

    for (body, pointer) in
        [(r#"{"node.zone":"b"}"#, "/node.zone"), (r#"{"a b":"c"}"#, "/a b"), (r#"{"zone":"a,b"}"#, "/zone")]
    {
        let refused = patch(body).await.problem(422, "invalid-labels");
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
    }
    let many: std::collections::BTreeMap<String, &str> = (0..64).map(|i| (format!("k{i}"), "")).collect();
    let refused = patch(&serde_json::to_string(&many).unwrap()).await.problem(422, "invalid-labels");
    assert!(refused["detail"].as_str().unwrap().contains("more than 64 labels"), "{refused}");
    assert_eq!(patch(r#"{"zone":1}"#).await.problem(400, "invalid-body")["errors"][0]["pointer"], "/zone");
    patch("[]").await.problem(400, "invalid-body");
    let unknown = api.send("PATCH", "/node/none/labels", &[], r#"{"zone":"b"}"#).await;
    unknown.problem(404, "node-not-found");
    assert_eq!(api.get("/node/worker1").await.expect(200)["labels"], serde_json::json!({"zone": "b"}));
}

#[tokio::test]
async fn only_a_dead_node_is_removed() {
    let Some(api) = Api::start() else { return };
    register(&api, "worker1", "", 0);
    let refused = api.delete("/node/worker1").await.problem(409, "node-in-use");
    assert!(refused["detail"].as_str().unwrap().contains("stop its worker"), "{refused}");
    api.redis.blocking_cli::<()>(&["HSET", "node:worker1", "state", "dead"]);
    api.redis.blocking_cli::<()>(&["ZREM", "beats", "worker1"]);
    api.redis.blocking_cli::<()>(&["LPUSH", "pq:worker1", "payload"]);
    api.delete("/node/worker1").await.problem(409, "node-in-use");
    api.redis.blocking_cli::<()>(&["DEL", "pq:worker1"]);
    assert_eq!(api.delete("/node/worker1").await.status, 204);
    api.get("/node/worker1").await.problem(404, "node-not-found");
    api.delete("/node/worker1").await.problem(404, "node-not-found");
}

#[tokio::test]
async fn the_status_says_that_redis_would_evict_pods() {
    let Some(api) = Api::start() else { return };
    api.redis.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let problems = api.get("/status").await.expect(200)["problems"].to_string();
    assert!(problems.contains("maxmemory-policy noeviction"), "{problems}");
}

#[tokio::test]
async fn the_states_of_nodes_add_up_to_the_number_of_nodes() {
    let Some(api) = Api::start() else { return };
    for (name, beat_ago) in [("ready", 0), ("cordoned", 0), ("silent", 60_000), ("dead", 60_000)] {
        register(&api, name, "", beat_ago);
    }
    api.post("/node/cordoned/cordon", "").await.expect(200);
    api.redis.blocking_cli::<()>(&["HSET", "node:dead", "state", "dead"]);
    let metrics = api.get("/metrics").await.text;
    let values = |name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(values("kubeleet_nodes{").iter().sum::<f64>(), 4.0, "{metrics}");
    assert_eq!(values("kubeleet_nodes{state=\"dead\"}"), [1.0]);
    assert_eq!(values("kubeleet_nodes_cordoned"), [1.0], "beside the states: a cordoned node has one too");
}
