//! Plans: what changes would do, and their refusals.

use std::time::Instant;

use serde_json::{Value, json};

use super::nodes::register;
use super::{Answer, Api};
use crate::admission::plan_gate::RunningPlan;

async fn plan(api: &Api, changes: Value) -> Answer {
    api.post("/plan", &json!({ "changes": changes }).to_string()).await
}

#[tokio::test]
async fn a_plan_shows_what_would_start_and_what_does_not_fit_and_changes_nothing() {
    let Some(api) = Api::start() else { return };
    register(&api, "w1", "kubeleet", 0);
    let _: u64 = api.redis.cli(&["HSET", "node:w1", "pods", "10"]).await;
    api.post("/service", r#"{"name":"web","image":"nginx","replicas":2}"#).await.expect(201);
    let before = api.get("/service/web").await.expect(200);
    let planned = plan(&api, json!([{"scale": {"web": 12}}])).await.expect(200);
    assert_eq!((&planned["fits"], planned["starts"].as_array().unwrap().len()), (&false.into(), 8));
    let stuck = planned["stuck"].as_array().unwrap();
    let why = stuck[0]["why"].as_str().unwrap();
    assert_eq!((stuck.len(), stuck[0]["pod"]["uuid"].is_null()), (2, true));
    assert!(why.contains("TooManyPods"), "{why}");
    assert_eq!(planned["nodes"][0]["before"]["pods"], 2, "those that wait are placed first");
    let running = RunningPlan::begin(&api.app.plan_gate, Instant::now()).unwrap();
    api.post("/plan", r#"{"changes":[]}"#).await.problem(429, "plan-busy");
    drop(running);

    let new = json!({"add_node": {"cpus": 2, "memory": "1GiB", "labels": {"zone": "b"}, "count": 2}});
    let changes = json!([new, {"lose": "zone=a"}, {"put": {"name": "db", "image": "a"}}]);
    let planned = plan(&api, changes).await.expect(200);
    assert_eq!((&planned["fits"], planned["moves"].as_array().unwrap().len()), (&true.into(), 2));
    assert_eq!(planned["starts"][0]["service"], "db");
    let names: Vec<&Value> = planned["nodes"].as_array().unwrap().iter().map(|node| &node["node"]).collect();
    assert_eq!(names, ["new-1", "new-2", "w1"]);
    assert_eq!(
        (&planned["nodes"][2]["is_lost"], &planned["nodes"][0]["before"]),
        (&true.into(), &Value::Null)
    );
    let mut after = api.get("/service/web").await.expect(200);
    after["updated_at"].clone_from(&before["updated_at"]);
    assert_eq!(after["replicas"], before["replicas"]);
    assert_eq!(api.get("/service").await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_that_cannot_be_planned_is_refused_with_its_place() {
    let Some(api) = Api::start() else { return };
    register(&api, "w1", "kubeleet", 0);
    for (change, pointer, detail) in [
        (json!({"drain": "w9"}), "/changes/1", "there is no node w9"),
        (json!({"lose": "zone=x"}), "/changes/1/lose", "no live node has this name"),
        (json!({"lose": "zone of a"}), "/changes/1/lose", "is not a label selector"),
        (json!({"scale": {"web": 3}}), "/changes/1", "there is no service web"),
        (json!({"add_node": {"cpus": 1, "memory": 1, "count": 0}}), "/changes/1/add_node", "1 to 1000"),
        (json!({"put": {"name": "Web", "image": "a"}}), "/changes/1/put", "name"),
    ] {
        let problem = plan(&api, json!([{}, change])).await.problem(422, "invalid-plan");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    let many = vec![json!({}); 101];
    plan(&api, json!(many)).await.problem(422, "invalid-plan");
    plan(&api, json!([{"explode": 1}])).await.problem(400, "invalid-body");
}
