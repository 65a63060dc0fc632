use serde_json::{Value, json};

use super::redis::Redis;
use super::{Api, call, until};

const WEB: &str = r#"{"name":"web","image":"nginx","replica":3}"#;

#[tokio::test]
async fn the_smallest_service() {
    let Some(api) = Api::start() else { return };
    let made = api.post("/service", WEB).await;
    assert_eq!(made.header("location"), "/service/web");
    let view = made.expect(201);
    assert_eq!(
        (&view["name"], &view["replicas"], &view["generation"]),
        (&json!("web"), &json!(3), &json!(1))
    );
    assert_eq!(view["status"]["pending"], 3);
    assert_eq!(view["durability"]["state"], "single_machine");
    assert_eq!(api.redis.run(&["LLEN", "sq"]), ":3");
    let read = api.get("/service/web").await;
    assert_eq!(read.header("etag"), "\"1\"");
    assert_eq!(read.expect(200)["containers"][0]["image"], "nginx");
    assert!(read.json().get("durability").is_none());
}

#[tokio::test]
async fn json_and_yaml_are_the_same() {
    let Some(api) = Api::start() else { return };
    let spec = json!({"replicas": 2, "labels": {"team": "x", "n": "1"}, "on_disconnect": "stop",
        "stop_grace_period": "1m", "containers": [{"image": "nginx:1", "command": ["a", "b c"], "memory": "64m",
        "cpus": 0.5, "environment": {"A": "1", "B": "true"}, "ports": ["8080:80", 90], "restart": "on-failure"}]});
    let mut as_json = spec.clone();
    as_json["name"] = "a".into();
    let yaml = "# a comment\nname: b\nreplicas: 2\nlabels: {team: x, n: '1'}\non_disconnect: stop\n\
        stop_grace_period: 60\ncontainers:\n- image: 'nginx:1'\n  command: a 'b c'\n  memory: 64MiB\n  cpus: 500m\n  \
        environment: [A=1, B=true]\n  ports:\n  - \"8080:80\"\n  - 90\n  restart: on-failure\n";
    let a = api.post("/service", &as_json.to_string()).await.expect(201);
    for (method, path, kind) in [
        ("POST", "/service", "application/yaml"),
        ("PUT", "/service/b", "text/yaml"),
        ("PUT", "/service/b", "application/x-yaml; charset=utf-8"),
    ] {
        let b = api.send(method, path, &[("content-type", kind)], yaml).await;
        assert!(b.status < 300, "{b:?}");
        let b = b.json();
        for field in ["replicas", "labels", "on_disconnect", "stop_grace_period", "containers", "generation"]
        {
            assert_eq!(a[field], b[field], "{field}");
        }
    }
}

#[tokio::test]
async fn what_curl_sends_is_json() {
    let Some(api) = Api::start() else { return };
    let form = [("content-type", "application/x-www-form-urlencoded")];
    api.send("POST", "/service", &form, WEB).await.expect(201);
    let text = [("content-type", "text/plain")];
    api.send("POST", "/service", &text, WEB).await.problem(415, "unsupported-media-type");
}

#[tokio::test]
async fn once_is_enough() {
    let Some(api) = Api::start() else { return };
    api.post("/service", WEB).await.expect(201);
    api.post("/service", WEB).await.problem(409, "service-exists");
    api.send("PUT", "/service/web", &[], WEB).await.expect(200);
    assert_eq!(api.redis.run(&["LLEN", "sq"]), ":3", "nothing was made twice");
}

#[tokio::test]
async fn put_makes_and_replaces() {
    let Some(api) = Api::start() else { return };
    let put = api.send("PUT", "/service/web", &[], WEB).await;
    assert_eq!((put.status, put.header("location")), (201, "/service/web"));
    let second = r#"{"name":"web","image":"nginx:2","replica":4}"#;
    let view = api.send("PUT", "/service/web", &[("if-match", "\"1\"")], second).await.expect(200);
    assert_eq!((&view["generation"], &view["status"]["pending"]), (&json!(2), &json!(4)));
    let late = api.send("PUT", "/service/web", &[("if-match", "1")], WEB).await;
    late.problem(412, "generation-conflict");
    let nowhere = r#"{"name":"no","image":"nginx"}"#;
    api.send("PUT", "/service/no", &[("if-match", "*")], nowhere).await.problem(412, "generation-conflict");
    api.send("PUT", "/service/web", &[("if-match", "x")], WEB).await.problem(400, "bad-request");
    let renamed = api.send("PUT", "/service/other", &[], WEB).await.problem(422, "invalid-service");
    assert_eq!(renamed["errors"][0]["pointer"], "/name");
}

#[tokio::test]
async fn patch_changes_what_it_names() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"web","image":"nginx","environment":{"A":"1","B":"2"},"replica":1}"#)
        .await;
    let kind = [("content-type", "application/merge-patch+json")];
    let patch = r#"{"image":"nginx:2","environment":{"A":null,"C":"3"},"numInstances":2}"#;
    let view = api.send("PATCH", "/service/web", &kind, patch).await.expect(200);
    assert_eq!(view["containers"][0]["image"], "nginx:2");
    assert_eq!(view["containers"][0]["environment"], json!({"B": "2", "C": "3"}));
    assert_eq!((&view["replicas"], &view["generation"]), (&json!(2), &json!(2)));
    api.send("PATCH", "/service/web", &[("if-match", "1")], "{}").await.problem(412, "generation-conflict");
    api.send("PATCH", "/service/no", &kind, "{}").await.problem(404, "service-not-found");
    api.send("PATCH", "/service/web", &kind, r#"{"name":"x"}"#).await.problem(422, "invalid-service");
    api.send("PATCH", "/service/web", &kind, r#"{"imagee":"x"}"#).await.problem(400, "invalid-body");
    api.send("PATCH", "/service/web", &kind, r#"{"memory":"1k"}"#).await.problem(422, "invalid-service");
    api.send("PATCH", "/service/web", &kind, "[]").await.problem(400, "invalid-body");
}

#[tokio::test]
async fn scaling_up_makes_pods_at_once() {
    let Some(api) = Api::start() else { return };
    api.post("/service", WEB).await;
    let view = api.post("/service/web/scale", r#"{"replica":5}"#).await.expect(200);
    assert_eq!((&view["replicas"], &view["status"]["pending"]), (&json!(5), &json!(5)));
    assert_eq!(view["generation"], 1);
    api.post("/service/web/scale", r#"{"numInstances":1}"#).await.expect(200);
    api.post("/service/no/scale", r#"{"replicas":1}"#).await.problem(404, "service-not-found");
    let many =
        api.post("/service/web/scale", r#"{"replicas":2000001}"#).await.problem(422, "invalid-service");
    assert_eq!(many["errors"][0]["pointer"], "/replicas");
    api.post("/service/web/scale", r#"{"replicas":-1}"#).await.problem(400, "invalid-body");
}

#[tokio::test]
async fn many_pods_are_made_after_the_answer() {
    let Some(api) = Api::start() else { return };
    let view = api.post("/service", r#"{"name":"big","image":"nginx","replica":1000}"#).await.expect(201);
    assert_eq!(view["status"]["desired"], 1000);
    until("a thousand pods", || async { api.redis.run(&["LLEN", "sq"]) == ":1000" }).await;
    assert_eq!(api.get("/service/big").await.expect(200)["status"]["pending"], 1000);
}

#[tokio::test]
async fn deleting_takes_a_while() {
    let Some(api) = Api::start() else { return };
    api.post("/service", WEB).await;
    let going = api.delete("/service/web").await.expect(202);
    assert_eq!((&going["state"], &going["replicas"]), (&json!("deleting"), &json!(0)));
    assert!(going["status"]["message"].as_str().unwrap().contains("3 of its pods"), "{going}");
    api.post("/service", WEB).await.problem(409, "service-deleting");
    api.send("PUT", "/service/web", &[], WEB).await.problem(409, "service-deleting");
    api.post("/service/web/scale", r#"{"replicas":1}"#).await.problem(409, "service-deleting");
    api.delete("/service/web").await.expect(202);
    api.delete("/service/no").await.problem(404, "service-not-found");
    api.get("/service/Not-A-Name").await.problem(404, "service-not-found");
}

#[tokio::test]
async fn listing_by_label_and_page() {
    let Some(api) = Api::start() else { return };
    for (name, team) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        let service =
            json!({"name": name, "image": "nginx", "replica": 0, "labels": {"team": team, "all": "1"}});
        api.post("/service", &service.to_string()).await.expect(201);
    }
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = api.get("/service?label=team=x&label=all=1&limit=2").await.expect(200);
    assert_eq!((names(&first), &first["next"]), (vec!["a".into(), "c".into()], &json!("c")));
    let second = api.get("/service?label=team%3Dx&limit=2&after=c").await.expect(200);
    assert_eq!(names(&second), ["d"]);
    assert!(second.get("next").is_none());
    assert_eq!(names(&api.get("/service").await.expect(200)).len(), 4);
    for bad in ["limit=0", "limit=x", "limit=10001", "label=x", "colour=red"] {
        api.get(&format!("/service?{bad}")).await.problem(400, "invalid-query");
    }
}

#[tokio::test]
async fn two_apis_behave_as_one() {
    let Some(api) = Api::start() else { return };
    let (_, twin) = api.twin();
    // The same service is posted to both at once: one makes it, the other says so, and its pods are made once.
    let (a, b) = tokio::join!(api.post("/service", WEB), call(&twin, "POST", "/service", &[], WEB));
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
    let here = api.get("/service/web").await;
    let there = call(&twin, "GET", "/service/web", &[], "").await;
    assert_eq!(here.expect(200), there.expect(200));
    let both = (
        api.post("/service/web/scale", r#"{"replicas":40}"#),
        call(&twin, "POST", "/service/web/scale", &[], r#"{"replicas":40}"#),
    );
    let (a, b) = tokio::join!(both.0, both.1);
    assert_eq!((a.status, b.status), (200, 200));
    assert_eq!(api.redis.run(&["LLEN", "sq"]), ":40");
}

#[tokio::test]
async fn what_the_replicas_have_is_told() {
    let Some(api) = Api::start() else { return };
    let Some(replica) = Redis::start() else { return };
    replica.follow(&api.redis);
    let confirmed = api.post("/service", WEB).await.expect(201);
    assert_eq!(
        (&confirmed["durability"]["state"], &confirmed["durability"]["replicas"]),
        (&json!("confirmed"), &json!(1))
    );
    replica.freeze();
    let made = api.post("/service", r#"{"name":"two","image":"nginx"}"#).await;
    assert_eq!(made.header("location"), "/service/two");
    let durability = &made.expect(202)["durability"];
    assert_eq!(durability["state"], "unconfirmed");
    assert_eq!(durability["message"], "stored, not yet confirmed by 1 of 1 replicas");
    api.get("/service/two").await.expect(200);
    assert_eq!(api.get("/status").await.expect(200)["durability"]["state"], "unconfirmed");
}
