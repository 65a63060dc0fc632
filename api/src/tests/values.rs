//! `/secret` and `/config`.

use model::ids::NodeName;
use model::node::{NodeInfo, NodeSettings, Resources};
use model::value::ValueKind;
use model::value::secret_key::SecretKey;
use serde_json::Value;
use testkit::{eventually, fixtures};

use super::Api;

/// Test configurations read no files, and a key is one.
pub(super) fn start_with_key() -> Option<Api> {
    let mut api = Api::start()?;
    let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    let mut config = (*api.app.config).clone();
    config.secret_key = Some(key);
    api.app.config = config.into();
    api.router = crate::router::router(api.app.clone());
    Some(api)
}

#[tokio::test]
async fn a_secret_is_created_rotated_listed_and_deleted_and_never_shown() {
    let Some(api) = start_with_key() else { return };
    let created = api.post("/secret", r#"{"name":"db","value":"hunter2"}"#).await;
    assert_eq!((created.status, created.header("location")), (201, "/secret/db"), "{created:?}");
    assert_eq!(created.json()["version"], 1);
    api.post("/secret", r#"{"name":"db","value":"hunter2"}"#).await.problem(409, "value-exists");
    let rotated = api.send("PUT", "/secret/db", &[], r#"{"data":"aHVudGVyMw=="}"#).await.expect(200);
    assert_eq!(rotated["version"], 2);
    let same = api.send("PUT", "/secret/db", &[], r#"{"value":"hunter3"}"#).await.expect(200);
    assert_eq!(same["version"], 2, "no pod needs to be replaced: {same}");
    for path in ["/secret", "/secret/db"] {
        let text = api.get(path).await.text;
        assert!(!text.contains("hunter") && !text.contains("aHVudGVy"), "{text}");
    }
    assert_eq!(api.get("/secret").await.json()["items"][0]["name"], "db");
    api.get("/config/db").await.problem(404, "value-not-found");
    assert_eq!(api.delete("/secret/db").await.status, 204);
    api.delete("/secret/db").await.problem(404, "value-not-found");
    api.send("PUT", "/secret/db", &[], r#"{"value":"x"}"#).await.problem(404, "value-not-found");
}

#[tokio::test]
async fn a_secret_of_an_app_is_compared_and_changed_by_that_app_only() {
    let Some(api) = start_with_key() else { return };
    let compared = |body: &'static str| api.send("POST", "/secret/shop-db/compare", &[], body);
    compared(r#"{"value":"hunter2"}"#).await.problem(404, "value-not-found");
    let created = api.post("/secret", r#"{"name":"shop-db","value":"hunter2","app":"shop"}"#).await;
    assert_eq!((created.status, &created.json()["app"]), (201, &"shop".into()));
    let same = compared(r#"{"data":"aHVudGVyMg=="}"#).await.expect(200);
    assert_eq!(same, serde_json::json!({"name": "shop-db", "version": 1, "same": true}));
    assert_eq!(compared(r#"{"value":"hunter3"}"#).await.expect(200)["same"], false);
    let put = |body: &'static str| api.send("PUT", "/secret/shop-db", &[], body);
    let refused = put(r#"{"value":"hunter3","app":"other"}"#).await;
    let detail = refused.problem(409, "value-exists")["detail"].to_string();
    assert!(detail.contains("belongs to app shop") && !detail.contains("hunter"), "{detail}");
    assert_eq!(put(r#"{"value":"hunter3","app":"shop"}"#).await.expect(200)["version"], 2);
    let rotated = put(r#"{"value":"hunter4"}"#).await.expect(200);
    assert_eq!((&rotated["version"], &rotated["app"]), (&3.into(), &"shop".into()), "it stays with its app");
    api.post("/config", r#"{"name":"free","value":"x"}"#).await;
    let refused = api.send("PUT", "/config/free", &[], r#"{"value":"y","app":"shop"}"#).await;
    assert!(refused.problem(409, "value-exists")["detail"].to_string().contains("belongs to no app"));
}

async fn register(api: &Api, name: &str, key: &SecretKey) {
    let settings = NodeSettings { secret_key: Some(key.id().to_owned()), ..NodeSettings::default() };
    let facts = NodeInfo { settings: Some(settings), ..fixtures::node_info(Resources::default()) };
    let name = NodeName::new(name).unwrap();
    api.app.store.register(&name, &facts, fixtures::claimant(), None).await.unwrap();
}

#[tokio::test]
async fn an_api_with_another_key_than_the_workers_stores_nothing_that_they_could_not_read() {
    let Some(api) = start_with_key() else { return };
    let own = api.app.config.secret_key.clone().unwrap();
    let new_key = || SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    api.post("/secret", r#"{"name":"db","value":"hunter2"}"#).await.expect(201);
    let workers = new_key();
    register(&api, "a", &workers).await;
    register(&api, "b", &workers).await;
    eventually("the workers are known", || async {
        let refused = api.post("/secret", r#"{"name":"mq","value":"hunter2"}"#).await;
        if refused.text.contains("/problems/other-secret-key") { Ok(()) } else { Err(refused.text) }
    })
    .await;
    for (method, path, body) in [
        ("POST", "/secret", r#"{"name":"smtp","value":"hunter2"}"#),
        ("PUT", "/secret/db", r#"{"value":"hunter3"}"#),
        ("PUT", "/registry/reg.example", r#"{"user":"bob","password":"hunter2"}"#),
    ] {
        let refused = api.send(method, path, &[], body).await;
        let detail = refused.problem(409, "other-secret-key")["detail"].to_string();
        assert!(detail.contains(own.id()) && detail.contains(workers.id()), "{detail}");
    }
    assert_eq!(api.get("/secret/db").await.json()["version"], 1);
    api.post("/config", r#"{"name":"app.conf","value":"listen 80"}"#).await.expect(201);

    register(&api, "c", &own).await;
    let status = api.get("/status").await.json();
    let problems = status["problems"].as_array().unwrap();
    for start in [
        format!("node c has the secret key {}", own.id()),
        format!("this API has the secret key {}", own.id()),
    ] {
        assert!(problems.iter().any(|line| line.as_str().unwrap().starts_with(&start)), "{problems:?}");
    }
    // A new key goes to the workers first.
    register(&api, "a", &own).await;
    eventually("the secret is rotated", || async {
        let rotated = api.send("PUT", "/secret/db", &[], r#"{"value":"hunter3"}"#).await;
        if rotated.status == 200 { Ok(()) } else { Err(rotated.text) }
    })
    .await;
}

#[tokio::test]
async fn without_a_key_only_configs_can_be_created() {
    let Some(api) = Api::start() else { return };
    let refused = api.post("/secret", r#"{"name":"db","value":"hunter2"}"#).await;
    let detail = refused.problem(409, "secret-key-missing")["detail"].to_string();
    assert!(detail.contains("kubeleet secret key") && !detail.contains("hunter2"), "{detail}");
    let created = api.post("/config", r#"{"name":"app.conf","value":"listen 80"}"#).await;
    assert_eq!(created.status, 201, "{created:?}");
}

#[tokio::test]
async fn an_invalid_value_is_refused_without_a_part_of_it() {
    let Some(api) = Api::start() else { return };
    let large = format!(r#"{{"name":"a","value":"{}"}}"#, "hunter2".repeat(40_000));
    for (body, status, slug) in [
        (r#"{"name":"a"}"#, 422, "invalid-value"),
        (r#"{"name":"a","value":""}"#, 422, "invalid-value"),
        (r#"{"name":"a","value":"hunter2","data":"hunter2"}"#, 422, "invalid-value"),
        (r#"{"name":"a","data":"hunter2!"}"#, 422, "invalid-value"),
        (&large, 422, "invalid-value"),
        (r#"{"value":"hunter2"}"#, 422, "invalid-value"),
        (r#"{"name":"a","value":7734777}"#, 400, "invalid-body"),
        (r#"{"name":"a","value":["hunter2"]}"#, 400, "invalid-body"),
        (r#"{"name":"a","other":"hunter2"}"#, 400, "invalid-body"),
        (r#"{"name":"a","value":"hunter2"#, 400, "malformed-body"),
    ] {
        let answer = api.post("/config", body).await;
        answer.problem(status, slug);
        assert!(!answer.text.contains("hunter2") && !answer.text.contains("7734777"), "{}", answer.text);
    }
    let other = api.send("PUT", "/config/a", &[], r#"{"name":"b","value":"hunter2"}"#).await;
    other.problem(422, "invalid-value");
}

#[tokio::test]
async fn no_more_configs_than_the_settings_allow_are_created() {
    let Some(api) = Api::start_with(&[("KUBELEET_CLUSTER_MAX_SECRETS", "1")]) else { return };
    assert_eq!(api.post("/config", r#"{"name":"a","value":"x"}"#).await.status, 201);
    let refused = api.post("/config", r#"{"name":"b","value":"x"}"#).await;
    let detail = refused.problem(403, "cluster-limit")["detail"].to_string();
    assert!(detail.contains("KUBELEET_CLUSTER_MAX_SECRETS"), "{detail}");
}

#[tokio::test]
async fn a_login_is_stored_listed_and_deleted_and_its_password_never_shown() {
    let Some(api) = start_with_key() else { return };
    let login = r#"{"user":"bob","password":"hunter2"}"#;
    let path = "/registry/Registry.example:5000";
    let stored = api.send("PUT", path, &[], login).await.expect(200);
    assert_eq!((&stored["host"], &stored["user"]), (&"registry.example:5000".into(), &"bob".into()));
    let again = api.send("PUT", path, &[], r#"{"user":"ann","password":"hunter3"}"#).await.expect(200);
    assert_eq!(again["user"], "ann");
    assert_eq!(api.get("/registry").await.json()["items"][0]["user"], "ann");
    assert!(!api.get(path).await.text.contains("hunter"));
    for (path, body, status, slug) in [
        (path, r#"{"user":"","password":"hunter2"}"#, 422, "invalid-value"),
        (path, r#"{"user":"bob","password":"hunter2\n"}"#, 422, "invalid-value"),
        (path, r#"{"user":"bob","password":["hunter2"]}"#, 400, "invalid-body"),
        ("/registry/nohost", login, 404, "registry-not-found"),
    ] {
        let answer = api.send("PUT", path, &[], body).await;
        answer.problem(status, slug);
        assert!(!answer.text.contains("hunter2"), "{}", answer.text);
    }
    assert_eq!(api.delete(path).await.status, 204);
    api.delete(path).await.problem(404, "registry-not-found");
    let Some(keyless) = Api::start() else { return };
    keyless.send("PUT", path, &[], login).await.problem(409, "secret-key-missing");
}

#[tokio::test]
async fn what_services_use_is_only_deleted_by_force() {
    let Some(api) = start_with_key() else { return };
    api.post("/secret", r#"{"name":"db","value":"hunter2"}"#).await.expect(201);
    api.post("/config", r#"{"name":"db","value":"x"}"#).await.expect(201);
    let login = r#"{"user":"bob","password":"hunter2"}"#;
    api.send("PUT", "/registry/registry.example", &[], login).await.expect(200);
    let service = r#"{"name":"web","image":"registry.example/web:1","secrets":["db"]}"#;
    api.post("/service", service).await.expect(201);
    for path in ["/secret/db", "/registry/registry.example"] {
        let detail = api.delete(path).await.problem(409, "in-use")["detail"].to_string();
        assert!(detail.contains("service web") && detail.contains("--force"), "{detail}");
    }
    assert_eq!(api.delete("/config/db").await.status, 204, "a config of the same name is another one");
    assert_eq!(api.delete("/secret/db?force=true").await.status, 204);
    api.delete("/service/web").await;
    assert_eq!(api.delete("/registry/registry.example").await.status, 204);
}

/// With its own first and last line.
fn section(backup: &str, second: bool) -> String {
    let lines: Vec<&str> = backup.lines().collect();
    let first_end = lines.iter().position(|line| line.starts_with("{\"end\"")).unwrap();
    let part =
        if second { [&lines[..1], &lines[first_end + 1..]].concat() } else { lines[..=first_end].to_vec() };
    part.join("\n") + "\n"
}

#[tokio::test]
async fn a_backup_has_what_is_encrypted_as_it_is_and_a_restore_only_adds() {
    let Some(api) = start_with_key() else { return };
    let _: u64 = api.redis.cli(&["HSET", "meta", "cluster", "c"]).await;
    api.post("/secret", r#"{"name":"db","value":"hunter1"}"#).await.expect(201);
    api.send("PUT", "/secret/db", &[], r#"{"value":"hunter2"}"#).await.expect(200);
    api.post("/config", r#"{"name":"app.conf","data":"/wA="}"#).await.expect(201);
    let login = r#"{"user":"bob","password":"hunter3"}"#;
    api.send("PUT", "/registry/reg.example", &[], login).await.expect(200);
    let backup = api.get("/cluster/backup").await.text;
    assert!(!backup.contains("hunter") && !backup.contains("aHVudGVy"), "{backup}");
    let last: Value = serde_json::from_str(backup.lines().last().unwrap()).unwrap();
    assert_eq!(last["end"]["lines"], 3, "{backup}");
    let first = store::saved_state::SavedFile::read(backup.lines()).unwrap();
    assert!(first.end.more && first.state.pods.is_empty());

    api.redis.cli::<()>(&["FLUSHALL"]).await;
    api.post("/config", r#"{"name":"app.conf","value":"newer"}"#).await.expect(201);
    let restore = async |apply: bool| {
        let path = format!("/cluster/restore?part=values&apply={apply}");
        let lines = [("content-type", "application/x-ndjson")];
        let view = api.send("POST", &path, &lines, &section(&backup, true)).await.expect(200);
        (view["values"].as_u64().unwrap(), view["present_values"].as_u64().unwrap())
    };
    assert_eq!((restore(false).await, restore(true).await, restore(true).await), ((2, 1), (2, 1), (0, 3)));
    let name = |text: &str| model::ids::ValueName::new(text).unwrap();
    let key = api.app.config.secret_key.as_ref();
    let open = async |kind, text: &str| {
        let stored = api.app.store.current_value(kind, &name(text)).await.unwrap().unwrap();
        (stored.version(), stored.open(key).unwrap().expose().to_vec())
    };
    assert_eq!(open(ValueKind::Secret, "db").await, (2, b"hunter2".to_vec()));
    assert_eq!(open(ValueKind::Config, "app.conf").await, (1, b"newer".to_vec()), "what is there wins");
    let host = model::ids::RegistryHost::new("reg.example").unwrap();
    let login = api.app.store.login(&host).await.unwrap().unwrap().open(key).unwrap();
    assert_eq!((login.user.as_str(), login.password.expose()), ("bob", &b"hunter3"[..]));
}

#[tokio::test]
async fn a_certificate_is_ordered_only_with_a_key_and_routes_say_how_it_stands() {
    let Some(api) = start_with_key() else { return };
    let Some(keyless) = Api::start() else { return };
    let service = r#"{"name":"web","image":"x","replicas":0,"ingress":[
        {"host":"web.example","port":80,"tls":"auto"},{"port":80}]}"#;
    let refused = keyless.post("/service", service).await.problem(409, "secret-key-missing");
    assert!(refused["detail"].to_string().contains("certificates"), "{refused}");
    assert_eq!(api.post("/service", service).await.status, 201);
    let wildcard = service.replace("web.example", "*.example").replace("\"web\"", "\"other\"");
    let refused = api.post("/service", &wildcard).await.problem(422, "invalid-service");
    assert_eq!(refused["errors"][0]["pointer"], "/ingress/0/tls", "{refused}");
    let certificate = async || {
        let routes = api.get("/route").await.expect(200);
        let items = routes["items"].as_array().unwrap().clone();
        assert!(items[0]["certificate"].is_null(), "{routes}");
        items[1]["certificate"].clone()
    };
    assert_eq!(certificate().await, serde_json::json!({"is_being_ordered": false}));
    let store = &api.app.store;
    assert!(store.lease("acme", &"p", std::time::Duration::from_secs(60)).await.unwrap());
    store.begin_certificate("web.example", "acme", "p", "1").await.unwrap();
    assert_eq!(certificate().await["is_being_ordered"], true);
    store.fail_certificate("web.example", "1", "why", std::time::Duration::from_secs(60)).await.unwrap();
    let failed = certificate().await;
    assert_eq!(failed["error"], "why");
    assert!(failed["next_order_at"].is_string() && failed["expires_at"].is_null(), "{failed}");
}
