//! Pods: listing in pages, filters, and stopping.

use serde_json::Value;

use super::Api;

fn uuids(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|pod| pod["uuid"].as_str().unwrap().to_owned()).collect()
}

async fn two_services(api: &Api) {
    api.post("/service", r#"{"name":"a","image":"nginx","replica":3}"#).await.expect(201);
    api.post("/service", r#"{"name":"b","image":"redis","replica":2}"#).await.expect(201);
    api.redis.blocking_cli::<()>(&[
        "HSET",
        "pod:mine",
        "name",
        "test",
        "phase",
        "running",
        "replica",
        "7",
        "image",
        "x",
        "generation",
        "0",
        "node",
        "worker1",
        "assignment",
        "as1",
        "attempts",
        "0",
        "restarts",
        "0",
        "cpu",
        "0",
        "memory",
        "0",
        "created_at",
        "1700000000000",
        "since",
        "1700000000000",
    ]);
    api.redis.blocking_cli::<()>(&["SADD", "pushed", "mine"]);
}

#[tokio::test]
async fn pods_are_listed_in_pages() {
    let Some(api) = Api::start() else { return };
    two_services(&api).await;
    let all = uuids(&api.get("/pod").await.expect(200));
    assert_eq!((all.len(), all[5].as_str()), (6, "mine"));
    for limit in 1..7 {
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let page = api.get(&format!("/pod?limit={limit}{after}")).await.expect(200);
            assert!(page["items"].as_array().unwrap().len() <= limit);
            found.extend(uuids(&page));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(found, all, "pages of {limit}");
    }
}

#[tokio::test]
async fn pods_are_filtered() {
    let Some(api) = Api::start() else { return };
    two_services(&api).await;
    let count = async |query: &str| uuids(&api.get(&format!("/pod?{query}")).await.expect(200)).len();
    assert_eq!(count("service=a").await, 3);
    assert_eq!(count("service=none").await, 0);
    assert_eq!(count("phase=pending").await, 5);
    assert_eq!(count("phase=running&node=worker1").await, 1);
    assert_eq!(count("node=worker2").await, 0);
    assert_eq!(count("prefix=mi").await, 1);
    assert_eq!(count("prefix=a-1").await, 1);
    assert_eq!(count("prefix=test-7").await, 1);
    let whole = uuids(&api.get("/pod?service=b").await.expect(200)).remove(0);
    assert_eq!(count(&format!("prefix={}", &whole[..13])).await, 1);
    for bad in ["phase=Running", "service=A", "node=-", "after=x", "limit=0", "colour=red"] {
        api.get(&format!("/pod?{bad}")).await.problem(400, "invalid-query");
    }
}

#[tokio::test]
async fn pods_are_selected_by_the_labels_of_their_service() {
    let Some(api) = Api::start() else { return };
    two_services(&api).await;
    api.send("PATCH", "/service/a", &[], r#"{"labels":{"tier":"front","team":"x"}}"#).await.expect(200);
    api.send("PATCH", "/service/b", &[], r#"{"labels":{"tier":"back"}}"#).await.expect(200);
    let all = uuids(&api.get("/pod").await.expect(200)).len();
    let of = async |query: &str| uuids(&api.get(&format!("/pod?{query}")).await.expect(200)).len();
    let (of_a, of_b) = (of("service=a").await, of("service=b").await);
    for (query, expected) in [
        ("label=tier=front", of_a),
        ("label=tier%20in%20(front,back)", of_a + of_b),
        ("label=team&service=b", 0),
        ("label=tier!=front", all - of_a),
        ("label=!tier", all - of_a - of_b),
    ] {
        assert_eq!(of(query).await, expected, "{query}");
    }
    let first = api.get("/pod?label=tier&limit=2").await.expect(200);
    let rest = api.get(&format!("/pod?label=tier&after={}", first["next"].as_str().unwrap())).await;
    assert_eq!(uuids(&first).len() + uuids(&rest.expect(200)).len(), of_a + of_b);
    for bad in ["label=", "label=a%20b"] {
        api.get(&format!("/pod?{bad}")).await.problem(400, "invalid-query");
    }
}

#[tokio::test]
async fn a_pending_pod_shows_its_refusals() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"a","image":"nginx"}"#).await.expect(201);
    let uuid = uuids(&api.get("/pod").await.expect(200)).remove(0);
    let why = r#"[{"reason":"InsufficientMemory","count":2,
        "nodes":[{"node":"w1","detail":"needs 2 GiB, 1 GiB free"}]}]"#;
    api.redis.cli::<()>(&["HSET", "uq:why", &uuid, why]).await;
    let key = format!("pod:{uuid}");
    api.redis.cli::<()>(&["HSET", &key, "reason", "Unschedulable", "message", "fits no node"]).await;
    let pod = api.get(&format!("/pod/{uuid}")).await.expect(200);
    assert_eq!(pod["refusals"][0]["nodes"][0]["detail"], "needs 2 GiB, 1 GiB free");
    assert_eq!(pod["reason"], "Unschedulable");
    let status = &api.get("/service/a").await.expect(200)["status"];
    assert_eq!((&status["unschedulable"], &status["pending"]), (&1.into(), &1.into()));
    assert_eq!(status["message"], "1 of 1 pods: Unschedulable: fits no node");
    api.get("/pod/none").await.problem(404, "pod-not-found");
}

#[tokio::test]
async fn a_pod_on_a_node_shows_the_decision_that_placed_it_there() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"a","image":"nginx"}"#).await.expect(201);
    let uuid = uuids(&api.get("/pod").await.expect(200)).remove(0);
    let (key, path) = (format!("pod:{uuid}"), format!("/pod/{uuid}/why"));
    let node = r#""used":[0,0,0,0,0],"has":[10,0,0,0,0],"beat":1000000"#;
    let decision = format!(
        r#"{{"form":1,"at":1000000,"node":"w1","node_count":2,"fitting":1,"refused":{{"Cordoned":1}},
        "dead_after_ms":20000,"pod":{{"request":[0,0,0,0,0]}},
        "nodes":[{{"name":"w1",{node}}},{{"name":"w0",{node},"cordoned":true}}]}}"#
    );
    api.redis.cli::<()>(&["HSET", &key, "phase", "assigned", "node", "w1", "assignment", "1"]).await;
    assert!(api.get(&path).await.expect(200)["decision"].is_null(), "none is kept");
    for text in ["nonsense", r#"{"form":1}"#, &decision] {
        let id: String = api.redis.cli(&["XADD", "decisions", "*", "pod", &uuid, "decision", text]).await;
        assert!(!id.is_empty());
        let shown = &api.get(&path).await.expect(200)["decision"];
        assert_eq!(shown.is_null(), text != decision, "{text}");
    }
    let shown = &api.get(&path).await.expect(200)["decision"];
    assert_eq!((&shown["at"], &shown["refused"]["Cordoned"]), (&"1970-01-01T00:16:40Z".into(), &1.into()));
    assert_eq!((&shown["nodes"][0]["node"], &shown["is_same_now"]), (&"w1".into(), &true.into()));
    assert_eq!(shown["nodes"][1]["objections"][0]["reason"], "Cordoned");
    api.redis.cli::<()>(&["HSET", &key, "node", "w2"]).await;
    assert!(api.get(&path).await.expect(200)["decision"].is_null(), "it is about another node");
    api.redis.cli::<()>(&["DEL", "decisions"]).await;
    api.redis.cli::<()>(&["SET", "decisions", "x"]).await;
    assert!(api.get(&path).await.expect(200)["decision"].is_null(), "of another type");
}

#[tokio::test]
async fn a_pod_is_stopped() {
    let Some(api) = Api::start() else { return };
    two_services(&api).await;
    let uuid = uuids(&api.get("/pod?service=a").await.expect(200)).remove(0);
    assert_eq!(api.delete(&format!("/pod/{uuid}")).await.expect(202)["phase"], "stopped");
    assert_eq!(api.delete(&format!("/pod/{uuid}")).await.expect(202)["phase"], "stopped", "twice is once");
    let on_a_node = api.delete("/pod/mine").await.expect(202);
    assert_eq!((&on_a_node["phase"], &on_a_node["node"]), (&"stopping".into(), &"worker1".into()));
    assert_eq!(api.redis.cli::<u64>(&["SISMEMBER", "stop:worker1", "mine"]).await, 1);
    api.delete("/pod/none").await.problem(404, "pod-not-found");
}
