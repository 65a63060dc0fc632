//! Queues and dead letters.

use super::Api;

#[tokio::test]
async fn queues_are_peeked() {
    let Some(api) = Api::start() else { return };
    let first = r#"{"name":"test","uuid":"one","image":"x","replica":0}"#;
    api.redis.cli::<()>(&["LPUSH", "sq", first]).await;
    api.redis.cli::<()>(&[&b"LPUSH"[..], b"sq", b"\xff\xfe"]).await;
    api.redis.cli::<()>(&["LPUSH", "pq:worker1", "a", "b", "c"]).await;
    api.redis.cli::<()>(&["SADD", "cs:worker1", "d"]).await;
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
    api.redis.cli::<()>(&["SADD", "nodes", "worker2"]).await;
    for key in ["pq:worker2", "rq:worker2", "cs:worker2"] {
        assert_eq!(api.get(&format!("/queue/{key}")).await.expect(200)["items"], serde_json::json!([]));
    }
    for key in ["pq:wroker1", "rq:wroker1", "cs:wroker1"] {
        let problem = api.get(&format!("/queue/{key}")).await.problem(404, "node-not-found");
        assert!(problem["detail"].as_str().unwrap().starts_with("there is no node wroker1"), "{problem}");
    }
    for none in ["up", "pq:", "xq:worker1", "pq:-", "service:web"] {
        api.get(&format!("/queue/{none}")).await.problem(404, "queue-not-found");
    }
    api.redis.cli::<()>(&["HSET", "uq", "one", first]).await;
    api.redis.cli::<()>(&["HSET", "pod:one", "message", "0/2 nodes fit"]).await;
    let unschedulable = api.get("/queue/uq").await.expect(200);
    assert_eq!(unschedulable["items"][0], serde_json::json!({"payload": first, "reason": "0/2 nodes fit"}));
    api.redis.cli::<()>(&["SADD", "nodes", "worker1"]).await;
    let lengths = api.get("/queue").await.expect(200);
    assert_eq!((&lengths["waiting"], &lengths["nodes"][0]["pending"]), (&2.into(), &3.into()));
    assert_eq!(lengths["nodes"][0]["running"], 1);
}

#[tokio::test]
async fn an_answer_with_payloads_has_a_few_mebibytes_and_says_what_it_leaves_out() {
    let Some(api) = Api::start() else { return };
    let (large, giant) = (vec![b'x'; 400_000], vec![b'g'; 40 << 20]);
    for _ in 0..30 {
        for (command, key) in [("LPUSH", "sq"), ("LPUSH", "pq:worker1"), ("LPUSH", "dq")] {
            api.redis.cli::<u64>(&[command.as_bytes(), key.as_bytes(), &large]).await;
        }
    }
    for number in 0..30_u8 {
        let payload = [&large[..], &[number]].concat();
        api.redis.cli::<u64>(&[&b"SADD"[..], b"cs:worker1", &payload[..]]).await;
        let id = format!("pod-{number}");
        api.redis.cli::<u64>(&[&b"HSET"[..], b"uq", id.as_bytes(), &payload[..]]).await;
    }
    for key in ["sq", "pq:worker1", "cs:worker1", "uq"] {
        let answer = api.get(&format!("/queue/{key}")).await;
        assert!(answer.text.len() < 6 << 20, "{key}: {} bytes", answer.text.len());
        let view = answer.expect(200);
        let shown = view["items"].as_array().unwrap().len() as u64;
        assert!(shown >= 10, "{key}: {shown}");
        assert_eq!(view["left_out"], 30 - shown, "{key}");
        let some = api.get(&format!("/queue/{key}?limit=3")).await.expect(200);
        assert_eq!((some["items"].as_array().unwrap().len(), &some["left_out"]), (3, &0.into()), "{key}");
    }
    for _ in 0..60 {
        api.redis.cli::<u64>(&[&b"LPUSH"[..], b"dq", &large[..]]).await;
    }
    let (mut path, mut all, mut pages) = ("/queue/dq".to_owned(), 0, 0);
    loop {
        let page = api.get(&path).await.expect(200);
        (all, pages) = (all + page["items"].as_array().unwrap().len(), pages + 1);
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/queue/dq?after={next}");
    }
    assert!(all == 90 && pages > 1, "{all} on {pages} pages");

    api.redis.cli::<u64>(&[&b"LPUSH"[..], b"rq:worker1", &giant[..]]).await;
    let view = api.get("/queue/rq:worker1").await.expect(200);
    let item = &view["items"][0];
    assert_eq!((item["payload"].as_str().unwrap().len(), &item["bytes"]), (1024, &giant.len().into()));
}

fn push_dead_letter(api: &Api, payload: &str) {
    let at = 1_700_000_000_000_u64;
    let dead_letter = serde_json::json!({"queue": "sq", "payload": payload, "reason": "no pod", "at": at});
    api.redis.blocking_cli::<()>(&["LPUSH", "dq", &dead_letter.to_string()]);
}

#[tokio::test]
async fn dead_letters_are_listed_requeued_and_discarded() {
    let Some(api) = Api::start() else { return };
    for payload in ["one", "two", "three"] {
        push_dead_letter(&api, payload);
    }
    api.redis.cli::<()>(&[&b"RPUSH"[..], b"dq", b"by hand \xff"]).await;
    let page = api.get("/queue/dq?limit=2").await.expect(200);
    assert_eq!((&page["items"][0]["payload"], &page["next"]), (&"three".into(), &"2".into()));
    assert_eq!(page["items"][0]["at"], "2023-11-14T22:13:20Z");
    let rest = api.get("/queue/dq?limit=2&after=2").await.expect(200);
    assert_eq!((&rest["items"][0]["payload"], rest.get("next")), (&"one".into(), None));
    let id = |dead_letter: &serde_json::Value| dead_letter["id"].as_str().unwrap().to_owned();
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

#[tokio::test]
async fn a_dead_letter_goes_back_to_no_key_that_is_no_queue() {
    let Some(api) = Api::start() else { return };
    for queue in ["mine", "dq", "pq:", "pq:no node", "rq:w1", "node:w1"] {
        let entry = format!(r#"{{"queue":"{queue}","payload":"x","reason":"r","at":1}}"#);
        api.redis.cli::<u64>(&["LPUSH", "dq", &entry]).await;
        let dead_letter =
            api.get("/queue/dq").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
        let refused =
            api.post(&format!("/queue/dq/{dead_letter}/requeue"), "").await.problem(404, "queue-not-found");
        assert!(refused["detail"].as_str().unwrap().contains(queue), "{refused}");
        assert_eq!(api.delete(&format!("/queue/dq/{dead_letter}")).await.status, 204);
    }
    for key in ["mine", "rq:w1", "node:w1", "dq"] {
        assert_eq!(api.redis.cli::<u64>(&["EXISTS", key]).await, 0, "{key} was not written");
    }
    api.redis.cli::<u64>(&["SADD", "nodes", "w1"]).await;
    api.redis.cli::<u64>(&["LPUSH", "dq", r#"{"queue":"pq:w1","payload":"x","reason":"r","at":1}"#]).await;
    let dead_letter = api.get("/queue/dq").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(api.post(&format!("/queue/dq/{dead_letter}/requeue"), "").await.status, 204);
    assert_eq!(api.redis.cli::<u64>(&["LLEN", "pq:w1"]).await, 1);
}

#[tokio::test]
async fn a_dead_letter_is_edited_and_requeued() {
    let Some(api) = Api::start() else { return };
    push_dead_letter(&api, "{name:test}");
    let id = api.get("/queue/dq").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/queue/dq/{id}/requeue");
    let problem = api.post(&path, "{name:test}").await.problem(422, "invalid-payload");
    let detail = "the dead letter was not requeued: payload is not a pod: it is not JSON: the name of a field must \
                  stand in quotation marks (line 1, column 2)";
    assert_eq!(problem["detail"], detail);
    let upper = r#"{"name":"test","uuid":"one","image":"UPPER/Image","replica":0}"#;
    let problem = api.post(&path, upper).await.problem(422, "invalid-payload");
    assert!(problem["detail"].as_str().unwrap().contains("must be lower-case"), "{problem}");

    let corrected = r#"{"name":"test","uuid":"one","image":"x","replica":0}"#;
    api.redis.cli::<()>(&["HSET", "pod:one", "phase", "stopped"]).await;
    let problem = api.post(&path, corrected).await.problem(409, "dead-letter-conflict");
    assert!(problem["detail"].as_str().unwrap().contains("pod one has ended"), "{problem}");
    assert_eq!(api.get("/queue").await.expect(200)["dead"], 1, "nothing was lost");
    api.redis.cli::<()>(&["DEL", "pod:one"]).await;
    assert_eq!(api.post(&path, corrected).await.status, 204);
    assert_eq!(api.get("/queue/sq").await.expect(200)["items"][0]["payload"], corrected);
    assert_eq!(api.get("/queue").await.expect(200)["dead"], 0);
}

#[tokio::test]
async fn a_dead_letter_of_which_only_the_beginning_is_kept_is_requeued_with_a_body_only() {
    let Some(api) = Api::start() else { return };
    let entry =
        r#"{"queue":"sq","payload":"7b","encoding":"hex","bytes":600000,"reason":"too large","at":1}"#;
    api.redis.cli::<u64>(&["LPUSH", "dq", entry]).await;
    let id = api.get("/queue/dq").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/queue/dq/{id}/requeue");
    let problem = api.post(&path, "").await.problem(409, "dead-letter-conflict");
    assert!(problem["detail"].as_str().unwrap().contains("only its first KiB"), "{problem}");
    let lengths = api.get("/queue").await.expect(200);
    assert_eq!((&lengths["dead"], &lengths["waiting"]), (&1.into(), &0.into()), "nothing was changed");
    let whole = r#"{"name":"test","uuid":"one","image":"x","replica":0}"#;
    assert_eq!(api.post(&path, whole).await.status, 204);
    assert_eq!(api.get("/queue/sq").await.expect(200)["items"][0]["payload"], whole);
}
