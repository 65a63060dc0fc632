use super::Api;

#[tokio::test]
async fn looking_into_queues() {
    let Some(api) = Api::start() else { return };
    let first = r#"{"name":"test","uuid":"one","image":"x","replica":0}"#;
    api.redis.run(&["LPUSH", "sq", first]);
    api.redis.ask(&[b"LPUSH", b"sq", b"\xff\xfe"]);
    api.redis.run(&["LPUSH", "pq:worker1", "a", "b", "c"]);
    api.redis.run(&["SADD", "cs:worker1", "d"]);
    let sq = api.get("/queue/sq").await.expect(200);
    assert_eq!(
        (&sq["queue"], &sq["items"][0]["payload"]),
        (&"sq".into(), &first.into()),
        "the next one first"
    );
    assert_eq!((&sq["items"][1]["payload"], &sq["items"][1]["encoding"]), (&"//4=".into(), &"base64".into()));
    let pq = api.get("/queue/pq:worker1?limit=2").await.expect(200);
    assert_eq!(pq["items"].as_array().unwrap().len(), 2);
    assert_eq!(pq["items"][0]["payload"], "a");
    assert_eq!(api.get("/queue/cs:worker1").await.expect(200)["items"][0]["payload"], "d");
    assert_eq!(api.get("/queue/rq:nobody").await.expect(200)["items"], serde_json::json!([]));
    for none in ["uq", "pq:", "xq:worker1", "pq:-", "service:web"] {
        api.get(&format!("/queue/{none}")).await.problem(404, "queue-not-found");
    }
    api.redis.run(&["SADD", "nodes", "worker1"]);
    let lengths = api.get("/queue").await.expect(200);
    assert_eq!((&lengths["waiting"], &lengths["nodes"][0]["pending"]), (&2.into(), &3.into()));
    assert_eq!(lengths["nodes"][0]["running"], 1);
}

fn bury(api: &Api, payload: &str) {
    let letter = serde_json::json!({"queue": "sq", "payload": payload, "reason": "no pod", "at": 1_700_000_000_000_u64});
    api.redis.run(&["LPUSH", "dq", &letter.to_string()]);
}

#[tokio::test]
async fn dead_letters() {
    let Some(api) = Api::start() else { return };
    for payload in ["one", "two", "three"] {
        bury(&api, payload);
    }
    api.redis.ask(&[b"RPUSH", b"dq", b"by hand \xff"]);
    let page = api.get("/queue/dq?limit=2").await.expect(200);
    assert_eq!((&page["items"][0]["payload"], &page["next"]), (&"three".into(), &"2".into()));
    assert_eq!(page["items"][0]["at"], "2023-11-14T22:13:20Z");
    let rest = api.get("/queue/dq?limit=2&after=2").await.expect(200);
    assert_eq!((&rest["items"][0]["payload"], rest.get("next")), (&"one".into(), None));
    let id = |letter: &serde_json::Value| letter["id"].as_str().unwrap().to_owned();
    let (three, one) = (id(&page["items"][0]), id(&rest["items"][0]));
    assert_eq!(api.post(&format!("/queue/dq/{three}/requeue"), "").await.status, 204);
    assert_eq!(api.get("/queue/sq").await.expect(200)["items"][0]["payload"], "three");
    api.post(&format!("/queue/dq/{three}/requeue"), "").await.problem(404, "letter-not-found");
    assert_eq!(api.delete(&format!("/queue/dq/{one}")).await.status, 204);
    api.delete(&format!("/queue/dq/{one}")).await.problem(404, "letter-not-found");
    assert_eq!(api.get("/queue").await.expect(200)["dead"], 2);
    for bad in ["after=x", "after=-1", "after=99999999999999999999", "limit=0"] {
        api.get(&format!("/queue/dq?{bad}")).await.problem(400, "invalid-query");
    }
}
