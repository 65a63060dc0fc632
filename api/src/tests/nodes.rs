use super::Api;

fn register(api: &Api, name: &str, kind: &str, beat_ago_ms: i64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let beat = (now - beat_ago_ms).to_string();
    api.redis.run(&[
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
        "version",
        "0.1.0",
    ]);
    api.redis.run(&["SADD", "nodes", name]);
}

#[tokio::test]
async fn nodes_and_how_they_are() {
    let Some(api) = Api::start() else { return };
    register(&api, "worker1", "", 0);
    register(&api, "worker2", "guest", 60_000);
    api.redis.run(&["LPUSH", "pq:worker1", "x", "y"]);
    let list = api.get("/node").await.expect(200);
    let (one, two) = (&list["items"][0], &list["items"][1]);
    assert_eq!(
        (&one["name"], &one["ready"], &one["fenceable"]),
        (&"worker1".into(), &true.into(), &true.into())
    );
    assert_eq!((&one["queues"]["pending"], &one["labels"]["zone"]), (&2.into(), &"a".into()));
    assert_eq!(
        (&two["kind"], &two["ready"], &two["fenceable"]),
        (&"guest".into(), &false.into(), &false.into())
    );
    let page = api.get("/node?limit=1").await.expect(200);
    assert_eq!(page["next"], "worker1");
    let rest = api.get("/node?limit=1&after=worker1").await.expect(200);
    assert_eq!((&rest["items"][0]["name"], rest.get("next")), (&"worker2".into(), None));
    api.redis.run(&["HSET", "node:worker1", "engine_problem", "no space left"]);
    let ill = api.get("/node/worker1").await.expect(200);
    assert_eq!((&ill["ready"], &ill["engine_problem"]), (&false.into(), &"no space left".into()));
    let problems = api.get("/status").await.expect(200)["problems"].to_string();
    assert!(problems.contains("no space left") && problems.contains("worker2 has been silent"), "{problems}");
}

#[tokio::test]
async fn cordoning() {
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
