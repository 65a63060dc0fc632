//! Services: create, replace, patch, scale, delete.

use std::collections::BTreeMap;

use model::service::members::{Member, Members, Standing};
use serde_json::{Value, json};

use super::{Api, call, eventually};
use testkit::Redis;

const WEB: &str = r#"{"name":"web","image":"nginx","replica":3}"#;

#[tokio::test]
async fn the_smallest_service_is_created() {
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
    assert_eq!(api.redis.cli::<u64>(&["LLEN", "sq"]).await, 3);
    let read = api.get("/service/web").await;
    assert_eq!(read.header("etag"), "\"1\"");
    assert_eq!(read.expect(200)["containers"][0]["image"], "nginx");
    assert!(read.json().get("durability").is_none());
}

#[tokio::test]
async fn json_and_yaml_mean_the_same() {
    let Some(api) = Api::start() else { return };
    let spec = json!({"replicas": 2, "labels": {"team": "y", "n": "1"}, "on_disconnect": "stop",
        "stop_grace_period": "1m", "containers": [{"image": "nginx:1", "command": ["a", "b c"],
        "memory": "64m", "cpus": 0.5, "environment": {"A": "1", "B": "true"}, "ports": ["8080:80", 90],
        "restart": "on-failure"}]});
    let mut as_json = spec.clone();
    as_json["name"] = "a".into();
    let yaml = "# a comment\nname: b\nreplicas: 2\nlabels: {team: y, n: '1'}\non_disconnect: stop\n\
        stop_grace_period: 60\ncontainers:\n- image: 'nginx:1'\n  command: a 'b c'\n  memory: 64MiB\n  \
        cpus: 500m\n  environment: [A=1, B=true]\n  ports:\n  - \"8080:80\"\n  - 90\n  restart: on-failure\n";
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
async fn the_default_type_of_curl_is_read_as_json() {
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
    assert_eq!(api.redis.cli::<u64>(&["LLEN", "sq"]).await, 3, "nothing was made twice");
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
async fn patch_changes_only_the_named_fields() {
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
async fn scaling_up_creates_pods_at_once() {
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
async fn many_pods_are_created_after_the_response() {
    let Some(api) = Api::start() else { return };
    let view = api.post("/service", r#"{"name":"big","image":"nginx","replica":1000}"#).await.expect(201);
    assert_eq!(view["status"]["desired"], 1000);
    eventually("a thousand pods", || async { api.redis.cli::<u64>(&["LLEN", "sq"]).await == 1000 }).await;
    assert_eq!(api.get("/service/big").await.expect(200)["status"]["pending"], 1000);
}

#[tokio::test]
async fn a_service_is_deleting_until_its_pods_are_gone() {
    let Some(api) = Api::start() else { return };
    api.post("/service", WEB).await;
    let deleting = api.delete("/service/web").await.expect(202);
    assert_eq!((&deleting["state"], &deleting["replicas"]), (&json!("deleting"), &json!(0)));
    assert!(deleting["status"]["message"].as_str().unwrap().contains("3 of its pods"), "{deleting}");
    api.post("/service", WEB).await.problem(409, "service-deleting");
    api.send("PUT", "/service/web", &[], WEB).await.problem(409, "service-deleting");
    api.post("/service/web/scale", r#"{"replicas":1}"#).await.problem(409, "service-deleting");
    api.delete("/service/web").await.expect(202);
    api.delete("/service/no").await.problem(404, "service-not-found");
    api.get("/service/Not-A-Name").await.problem(404, "service-not-found");
}

#[tokio::test]
async fn services_are_listed_by_label_and_page() {
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
    for (selector, expected) in [
        ("team!%3Dx", "b"),
        ("team%20in%20(y,z)", "b"),
        ("all,team%20notin%20(x)", "b"),
        ("!team", ""),
        ("team==y,all=1", "b"),
    ] {
        let list = api.get(&format!("/service?label={selector}")).await.expect(200);
        assert_eq!(names(&list).join(","), expected, "{selector}");
    }
    let of_app = json!({"name": "shop-web", "image": "nginx", "replica": 0, "app": "shop"});
    let stored = api.post("/service", &of_app.to_string()).await.expect(201);
    assert_eq!(
        (&stored["app"], names(&api.get("/service?app=shop").await.expect(200))),
        (&json!("shop"), vec!["shop-web".into()])
    );
    assert!(names(&api.get("/service?app=blog").await.expect(200)).is_empty());
    api.post("/service", &json!({"name": "web", "image": "nginx", "app": "shop"}).to_string())
        .await
        .problem(422, "invalid-service");
    for bad in [
        "app=Shop",
        "limit=0",
        "limit=x",
        "limit=10001",
        "label=",
        "label=a%20b",
        "label=x%20in",
        "colour=red",
    ] {
        api.get(&format!("/service?{bad}")).await.problem(400, "invalid-query");
    }
}

#[tokio::test]
async fn two_apis_behave_as_one() {
    let Some(api) = Api::start() else { return };
    let (_, twin) = api.twin();
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
    assert_eq!(api.redis.cli::<u64>(&["LLEN", "sq"]).await, 40);
}

#[tokio::test]
async fn a_write_reports_its_durability() {
    let Some(api) = Api::start() else { return };
    let replica = Redis::start().await;
    replica.replicate_from(&api.redis).await;
    replica.wait_in_sync_with(&api.redis).await;
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

#[tokio::test]
async fn every_change_raises_the_revision_and_only_a_new_specification_the_generation() {
    let Some(api) = Api::start() else { return };
    let created = api.post("/service", r#"{"name":"web","image":"nginx","replica":1}"#).await;
    assert_eq!((created.header("etag"), &created.expect(201)["revision"]), ("\"1\"", &json!(1)));
    let changes = [
        ("PUT", "/service/web", r#"{"name":"web","image":"nginx:2","replica":1}"#, 2, 2),
        ("PUT", "/service/web", r#"{"name":"web","image":"nginx:2","replica":1}"#, 2, 2),
        ("PUT", "/service/web", r#"{"name":"web","image":"nginx:2","replica":2}"#, 3, 2),
        ("PATCH", "/service/web", r#"{"labels":{"a":"b"}}"#, 4, 2),
        ("POST", "/service/web/scale", r#"{"replicas":3}"#, 5, 2),
        ("POST", "/service/web/scale", r#"{"replicas":3}"#, 5, 2),
        ("PATCH", "/service/web", r#"{"image":"nginx:3"}"#, 6, 3),
        ("DELETE", "/service/web", "", 7, 3),
    ];
    for (method, path, body, revision, generation) in changes {
        let answer = api.send(method, path, &[], body).await;
        let view = answer.json();
        assert_eq!(
            (&view["revision"], &view["generation"]),
            (&json!(revision), &json!(generation)),
            "{body}"
        );
        let etag = if method == "DELETE" { String::new() } else { format!("\"{revision}\"") };
        assert_eq!(answer.header("etag"), etag, "{body}");
    }
}

#[tokio::test]
async fn a_write_cannot_undo_a_scale_that_it_has_not_seen() {
    let Some(api) = Api::start() else { return };
    let body = r#"{"name":"web","image":"nginx","replica":0}"#;
    api.post("/service", body).await.expect(201);
    let seen = api.get("/service/web").await.header("etag").to_owned();
    api.post("/service/web/scale", r#"{"replicas":10}"#).await.expect(200);
    let stale = [("if-match", seen.as_str())];
    for (method, path, body) in [
        ("PUT", "/service/web", body),
        ("PATCH", "/service/web", r#"{"replica":0}"#),
        ("POST", "/service/web/scale", r#"{"replicas":0}"#),
        ("DELETE", "/service/web", ""),
    ] {
        let refused = api.send(method, path, &stale, body).await.problem(412, "generation-conflict");
        assert!(refused["detail"].as_str().unwrap().contains("revision 2"), "{refused}");
    }
    let service = api.get("/service/web").await;
    assert_eq!(service.expect(200)["replicas"], 10);
    let current = [("if-match", service.header("etag"))];
    api.send("POST", "/service/web/scale", &current, r#"{"replicas":4}"#).await.expect(200);
    api.send("DELETE", "/service/web", &[("if-match", "3")], "").await.expect(202);
}

#[tokio::test]
async fn a_patch_and_a_scale_at_the_same_time_both_count() {
    let Some(api) = Api::start() else { return };
    api.post("/service", r#"{"name":"web","image":"nginx","replica":0}"#).await.expect(201);
    for i in 1..=20 {
        let patch = format!(r#"{{"labels":{{"n":"{i}"}}}}"#);
        let scale = format!(r#"{{"replicas":{i}}}"#);
        let (patched, scaled) = tokio::join!(
            api.send("PATCH", "/service/web", &[], &patch),
            api.post("/service/web/scale", &scale),
        );
        assert_eq!((patched.status, scaled.status), (200, 200));
        let view = api.get("/service/web").await.expect(200);
        assert_eq!((&view["labels"]["n"], &view["replicas"]), (&json!(i.to_string()), &json!(i)), "{view}");
    }
}

#[tokio::test]
async fn a_service_cannot_wait_for_the_end_of_one_that_is_always_restarted() {
    let Some(api) = Api::start() else { return };
    let migration =
        |restart: &str| json!({"name": "migration", "image": "m", "restart": restart}).to_string();
    let web = |condition: &str| {
        json!({"name": "web", "image": "w", "depends_on": {"migration": condition}}).to_string()
    };
    api.post("/service", &migration("always")).await.expect(201);
    let problem = api.post("/service", &web("completed_successfully")).await.problem(422, "invalid-service");
    assert_eq!(problem["errors"][0]["pointer"], "/depends_on/migration");
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("its container is restarted whenever it ends"), "{detail}");
    api.get("/service/web").await.problem(404, "service-not-found");
    api.post("/service", &web("service_started")).await.expect(201);
    api.send("PUT", "/service/web", &[], &web("completed_successfully"))
        .await
        .problem(422, "invalid-service");
    api.send("PUT", "/service/migration", &[], &migration("on-failure")).await.expect(200);
    api.send("PUT", "/service/web", &[], &web("completed_successfully")).await.expect(200);
}

#[tokio::test]
async fn a_global_service_counts_its_nodes_and_is_not_scaled() {
    let Some(api) = Api::start() else { return };
    let agent = r#"{"name":"agent","image":"a","mode":"global","placement":{"constraints":["disk"]}}"#;
    let created = api.post("/service", agent).await.expect(201);
    assert_eq!((&created["mode"], &created["status"]["summary"]), (&json!("global"), &json!("starting")));
    let stored = api.app.store.service(&"agent".parse().unwrap()).await.unwrap().unwrap();
    api.app.store.put_members(&stored, &Members::of(BTreeMap::new()), None).await.unwrap();
    let without_nodes = api.get("/service/agent").await.json();
    assert_eq!(
        (&without_nodes["replicas"], &without_nodes["status"]["summary"]),
        (&json!(0), &json!("ready"))
    );

    let stored = api.app.store.service(&stored.name).await.unwrap().unwrap();
    let member = |node: &str, standing| Member { node: node.parse().unwrap(), standing };
    let members = BTreeMap::from([(0, member("w1", Standing::Out)), (1, member("w2", Standing::Open))]);
    api.app.store.put_members(&stored, &Members::of(members), None).await.unwrap();
    let with_one = api.get("/service/agent").await.json();
    assert_eq!((&with_one["replicas"], &with_one["status"]["desired"]), (&json!(1), &json!(1)));

    let scaled = api.post("/service/agent/scale", r#"{"replicas":3}"#).await.problem(409, "wrong-kind");
    assert!(scaled["detail"].as_str().unwrap().contains("is global"), "{scaled}");
    let replicated = r#"{"name":"agent","image":"a"}"#;
    for path in ["/service/agent", "/service/agent?dry_run=true"] {
        api.send("PUT", path, &[], replicated).await.problem(409, "wrong-kind");
    }
    api.send("PUT", "/service/agent", &[], agent).await.expect(200);
    let with_replicas = agent.replace("\"image\"", "\"replicas\":2,\"image\"");
    api.send("PUT", "/service/agent", &[], &with_replicas).await.problem(422, "invalid-service");
}
