//! Every key that the API reads, in every wrong form.

use model::ids::NodeName;
use model::node::{NodeInfo, Resources};
use serde_json::Value;
use testkit::fixtures;

use super::Api;

#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Own,
    Services,
    Pushed,
    Nodes,
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    Type,
    NoFields,
    Field(&'static str, &'static str),
}
use Wrong::{Field, NoFields, Type};

const HUGE: &str = "99999999999999999999999";

/// A key, wrong values each with whether `/status` names the key, and affected objects.
type Case = (&'static str, &'static [(Wrong, bool)], Scope);

const CASES: &[Case] = &[
    (
        "pod:bad",
        &[
            (Type, true),
            (NoFields, true),
            (Field("phase", "Running"), true),
            (Field("name", "Not a name"), true),
            (Field("cpu", "much"), true),
            (Field("replica", "-1"), true),
            (Field("since", HUGE), true),
            (Field("node", "no node!"), true),
            (Field("service", "No Service"), true),
            (Field("exit_code", HUGE), false),
            (Field("\u{0}field", "x"), false),
        ],
        Scope::Own,
    ),
    (
        "service:bad",
        &[
            (Type, true),
            (NoFields, true),
            (Field("spec_text", "{"), true),
            (Field("replicas", "-1"), true),
            (Field("replicas", HUGE), true),
            (Field("fields", r#"{"labels":[]}"#), true),
            (Field("generation", "new"), true),
            (Field("name", "Other Name"), false),
        ],
        Scope::Own,
    ),
    (
        "slots:bad",
        &[(Type, true), (Field("first", "x"), true), (Field("07", "x"), true), (Field(HUGE, "x"), true)],
        Scope::Own,
    ),
    (
        "node:bad",
        &[
            (Type, true),
            (NoFields, false),
            (Field("beat", "now"), true),
            (Field("cpu", HUGE), true),
            (Field("used_pods", "few"), true),
            (Field("labels", "x=y"), true),
            (Field("psi", "{}{"), true),
            (Field("incarnation", "not one, surely \u{7}"), true),
        ],
        Scope::Own,
    ),
    ("done:once", &[(Type, true)], Scope::Own),
    ("runs:night", &[(Type, true)], Scope::Own),
    ("pq:bad", &[(Type, true)], Scope::Own),
    ("rq:bad", &[(Type, true)], Scope::Own),
    ("cs:bad", &[(Type, true)], Scope::Own),
    ("fq:s1", &[(Type, true)], Scope::Own),
    ("sq", &[(Type, true)], Scope::Own),
    ("dq", &[(Type, true)], Scope::Own),
    ("uq", &[(Type, true)], Scope::Own),
    ("uq:why", &[(Type, true)], Scope::Own),
    ("uq:at", &[(Type, true)], Scope::Own),
    ("uq:class", &[(Type, true)], Scope::Own),
    ("uq:by_class", &[(Type, true)], Scope::Own),
    ("unconfirmed", &[(Type, true), (Field("bad", "x"), false)], Scope::Own),
    ("schedulers", &[(Type, true)], Scope::Own),
    ("events", &[(Type, true)], Scope::Own),
    ("decisions", &[(Type, true)], Scope::Own),
    ("meta", &[(Type, true)], Scope::Own),
    ("beats", &[(Type, true)], Scope::Own),
    ("services", &[(Type, true)], Scope::Services),
    ("pushed", &[(Type, true)], Scope::Pushed),
    ("nodes", &[(Type, true)], Scope::Nodes),
];

async fn write(api: &Api, key: &str, wrong: Wrong) {
    match wrong {
        Type => drop(api.redis.cli::<String>(&["SET", key, "1"]).await),
        NoFields => {
            api.redis.cli::<u64>(&["DEL", key]).await;
            api.redis.cli::<u64>(&["HSET", key, "other", "field"]).await;
        }
        Field(field, value) => {
            api.redis.cli::<u64>(&["HSET", key, field, value]).await;
        }
    }
}

async fn fill(api: &Api) {
    let facts = NodeInfo {
        labels: Default::default(),
        capacity: Resources { cpu_millis: 1000, memory_bytes: 1 << 30, pids: 1000, disk_bytes: 0, pods: 10 },
        reserved: Resources::default(),
        runtime: "fake".into(),
        engine_version: "1".into(),
        engine_id: String::new(),
        version: "1".into(),
        settings: None,
    };
    for name in ["good", "bad"] {
        let body = format!(r#"{{"name":"{name}","image":"nginx","replica":1}}"#);
        api.post("/service", &body).await.expect(201);
        api.app
            .store
            .register(&NodeName::new(name).unwrap(), &facts, fixtures::claimant(), None)
            .await
            .unwrap();
        let payload = format!(r#"{{"name":"p","uuid":"{name}","image":"nginx","replica":0}}"#);
        let record = format!("pod:{name}");
        let fields = ["phase", "pending", "name", "p", "image", "nginx", "replica", "0", "payload", &payload];
        let hset: Vec<&str> = ["HSET", &record].into_iter().chain(fields).collect();
        api.redis.cli::<u64>(&hset).await;
        api.redis.cli::<u64>(&["SADD", "pushed", name]).await;
    }
    create_cron_and_job(api).await;
    api.redis.cli::<u64>(&["ZADD", "schedulers", "1", "s1"]).await;
    api.redis.cli::<u64>(&["SADD", "services", "Not A Name", "\u{7f}"]).await;
}

async fn create_cron_and_job(api: &Api) {
    for body in [
        r#"{"kind":"cron","name":"night","image":"nginx","cron":{"schedule":"* * * * *"}}"#,
        r#"{"kind":"job","name":"once","image":"nginx"}"#,
    ] {
        api.post("/service", body).await.expect(201);
    }
}

fn all<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list["items"].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_broken_key_harms_the_object_that_it_names_and_nothing_else() {
    let Some(api) = Api::start() else { return };
    fill(&api).await;
    let pods = api.get("/pod?service=good").await.expect(200);
    let of_service = pods["items"][0]["uuid"].as_str().unwrap().to_owned();
    for (key, wrongs, scope) in CASES {
        for (wrong, is_named) in *wrongs {
            let case = format!("{key} {wrong:?}");
            let before: Option<Vec<u8>> = api.redis.cli(&["DUMP", key]).await;
            write(&api, key, *wrong).await;
            api.app.pod_counts.forget();

            let pods = api.get("/pod").await.expect(200);
            let pods = all(&pods, "uuid");
            assert!(*scope == Scope::Services || pods.contains(&of_service.as_str()), "{case}: {pods:?}");
            assert!(*scope == Scope::Pushed || pods.contains(&"good"), "{case}: {pods:?}");
            let services = api.get("/service?limit=10").await.expect(200);
            assert!(
                *scope == Scope::Services || all(&services, "name").contains(&"good"),
                "{case}: {services}"
            );
            let nodes = api.get("/node").await.expect(200);
            assert!(*scope == Scope::Nodes || all(&nodes, "name").contains(&"good"), "{case}: {nodes}");
            api.get("/queue").await.expect(200);
            for path in ["/pod/good", "/service/good", "/node/good", "/readyz"] {
                api.get(path).await.expect(200);
            }
            let metrics = api.get("/metrics").await.text;
            assert!(metrics.contains("kubeleet_redis_up 1"), "{case}: Redis answers");
            let status = api.get("/status").await.expect(200);
            let broken = status["broken"].as_array().unwrap();
            let problems = status["problems"].to_string();
            let is_listed = broken.iter().any(|broken| broken["key"] == *key && broken["problem"] != "");
            // A list or index of a wrong type is soon moved out of the way, and only the problem names it.
            let named = is_listed || problems.contains(&format!("the key `{key}`"));
            assert_eq!(named, *is_named, "{case}: {status}");
            assert!(!named || problems.contains(key), "{case}: {problems}");
            assert_eq!(status["redis"]["connected"], true, "{case}");

            api.redis.cli::<u64>(&["DEL", key]).await;
            if let Some(dump) = before {
                let restore = [&b"RESTORE"[..], key.as_bytes(), b"0", &dump];
                api.redis.cli::<String>(&restore).await;
            }
        }
    }
    api.app.pod_counts.forget();
    let status = api.get("/status").await.expect(200);
    assert_eq!(status["broken"], serde_json::json!([]), "all keys are as before: {status}");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_a_problem_of_its_own() {
    let Some(api) = Api::start() else { return };
    fill(&api).await;
    for key in ["pod:bad", "service:bad", "node:bad"] {
        write(&api, key, Type).await;
        let problem = api.get(&format!("/{}", key.replace(':', "/"))).await.problem(500, "broken-record");
        assert!(problem["detail"].as_str().unwrap().contains(key), "{problem}");
    }
}

#[tokio::test]
async fn many_broken_keys_are_counted_and_few_are_named() {
    let Some(api) = Api::start() else { return };
    for i in 0..100 {
        api.redis.cli::<String>(&["SET", &format!("pod:p{i}"), "1"]).await;
        api.redis.cli::<u64>(&["SADD", "pushed", &format!("p{i}")]).await;
    }
    let status = api.get("/status").await.expect(200);
    assert_eq!(status["broken"].as_array().unwrap().len(), crate::cluster::broken::MAX_NAMED);
    assert!(status["problems"].to_string().contains("100 keys cannot be read"), "{status}");
}

#[tokio::test]
async fn a_count_goes_on_when_its_client_gives_up() {
    let Some(api) = Api::start() else { return };
    api.redis.cli::<u64>(&["SADD", "pushed", "p"]).await;
    let count = api.app.pod_counts.read(&api.app.store);
    let gave_up = futures_util::FutureExt::now_or_never(count);
    assert!(gave_up.is_none(), "the count takes a round trip");
    testkit::eventually("the count ends without a client", async || {
        if api.app.pod_counts.is_counted() { Ok(()) } else { Err("it is still running".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn a_cron_or_job_with_a_broken_key_of_its_own_is_listed_and_its_message_names_the_key() {
    let Some(api) = Api::start() else { return };
    create_cron_and_job(&api).await;
    api.post("/service", r#"{"name":"web","image":"nginx"}"#).await.expect(201);
    let keys = ["runs:night", "done:once"];
    for key in keys {
        write(&api, key, Type).await;
    }
    let list = api.get("/service").await.expect(200);
    assert_eq!(all(&list, "name"), ["night", "once", "web"]);
    for (item, key) in list["items"].as_array().unwrap().iter().zip(keys) {
        let message = item["status"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("the key {key} cannot be read")), "{item}");
    }
    let [cron, job] = [&list["items"][0]["cron_status"], &list["items"][1]["job_status"]];
    assert_eq!((&cron["jobs"], &job["succeeded"]), (&0.into(), &0.into()));
    assert!(cron["next_at"].is_string(), "{cron}");
    api.get("/service/night").await.expect(200);
}
