//! Secrets on a real engine: their only places.

use std::path::{Path, PathBuf};

use kubeleet_tests::cluster::DaemonProcess;
use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

/// Must be found nowhere, nor its base64 at any offset.
const FIRST: &str = "Hunter-In-The-Clear-0001";
const SECOND: &str = "Gatherers-In-The-Clear-0002";

fn is_in(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[track_caller]
fn has_none(place: &str, text: &[u8]) {
    // The second is the common part of both base64 texts.
    for needle in ["In-The-Clear", "LUluLVRoZS1DbGVhci"] {
        assert!(!is_in(text, needle), "{place} has a secret in clear: {}", String::from_utf8_lossy(text));
    }
}

fn write_key(cluster: &Cluster) -> PathBuf {
    let path = cluster.folder().join("secret-key");
    std::fs::write(&path, model::value::secret_key::SecretKey::generate().unwrap()).unwrap();
    path
}

async fn dump(cluster: &Cluster) -> Vec<u8> {
    let script = "local out = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
        local kind = redis.call('TYPE', key).ok local value = '' \
        if kind == 'string' then value = redis.call('GET', key) \
        elseif kind == 'hash' then value = table.concat(redis.call('HGETALL', key), ' ') \
        elseif kind == 'list' then value = table.concat(redis.call('LRANGE', key, 0, -1), ' ') \
        elseif kind == 'set' then value = table.concat(redis.call('SMEMBERS', key), ' ') \
        elseif kind == 'zset' then value = table.concat(redis.call('ZRANGE', key, 0, -1), ' ') \
        else value = cjson.encode(redis.call('XRANGE', key, '-', '+')) end \
        out[#out + 1] = key .. ' ' .. value end return table.concat(out, '\\n')";
    cluster.redis.cli(&["EVAL", script, "0"]).await
}

fn directories(node: &str) -> Vec<PathBuf> {
    let below = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let of_user = format!("/dev/shm/kubeleet-{}", rustix::process::geteuid().as_raw());
    below(Path::new(&of_user)).iter().flat_map(|place| below(&place.join(node))).collect()
}

async fn search_everywhere(
    cluster: &Cluster,
    docker: &Docker,
    daemons: &[&DaemonProcess],
    api: &DaemonProcess,
) {
    let dumped = dump(cluster).await;
    assert!(is_in(&dumped, "secret:db_password") && is_in(&dumped, "chacha20poly1305:"));
    has_none("Redis", &dumped);
    for daemon in daemons {
        has_none(daemon.command_line(), daemon.whole_log().as_bytes());
    }
    for path in
        ["/secret", "/secret/db_password", "/service", "/pod", "/cluster/backup", "/event?follow=false"]
    {
        let answer = api.http().try_send(Method::GET, path, None).await.unwrap();
        has_none(path, answer.text().await.unwrap().as_bytes());
    }
    for container in docker.containers().await {
        has_none("docker inspect", docker.inspection(&container.id).await.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_in_the_file_of_its_container_and_nowhere_else() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let key = write_key(&cluster);
    let settings = [("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap()), ("KUBELEET_LOG", "debug")];
    let (api, scheduler) = (cluster.api_with(&settings).await, cluster.scheduler_with(&settings[1..]));
    let mut worker = cluster.worker_with("w1", "docker", &settings);
    let http = api.http();
    http.nodes_ready(1).await;
    let web = json!({"name": "web", "image": IMAGE, "replicas": 1, "user": "1000",
        "secrets": [{"source": "db_password", "uid": "1000", "mode": "0400"}], "configs": ["app.conf"]});
    http.post("/service", &web).await;
    eventually_within(SOON, "the pod waits for its secret", || async {
        let pods = http.pods("service=web").await;
        let reason = pods.first().map_or(Value::Null, |pod| pod["reason"].clone());
        check(reason == "SecretMissing", || format!("{pods:?}"))
    })
    .await;
    http.post("/secret", &json!({"name": "db_password", "value": FIRST})).await;
    http.post("/config", &json!({"name": "app.conf", "value": "listen 80"})).await;
    http.runs(SOON, "web", 1).await;
    let container = docker.containers().await.remove(0);
    assert!(is_in(&docker.archive(&container.id, "/run/secrets/db_password").await, FIRST));
    assert!(is_in(&docker.archive(&container.id, "/app.conf").await, "listen 80"));
    for (method, path, body) in [
        (Method::POST, "/secret", json!({"name": "db_password", "value": FIRST})),
        (Method::POST, "/secret", json!({"name": "other", "data": FIRST})),
        (Method::POST, "/secret", json!({"name": "other", "valu": FIRST})),
        (Method::POST, "/secret", json!({"name": "other", "value": [FIRST]})),
        (Method::PUT, "/secret/nowhere", json!({"value": FIRST})),
        (Method::PUT, "/secret/db_password", json!({"value": FIRST, "data": FIRST})),
    ] {
        let (status, answer) = http.send(method, path, Some(&body)).await;
        assert!(status.is_client_error(), "{path}: {status} {answer}");
        has_none(path, answer.to_string().as_bytes());
    }
    search_everywhere(&cluster, &docker, &[&api, &scheduler, &worker], &api).await;

    let (status, rotated) =
        http.send(Method::PUT, "/secret/db_password", Some(&json!({"value": SECOND}))).await;
    assert_eq!((status.as_u16(), &rotated["version"]), (200, &json!(2)), "{rotated}");
    eventually_within(SOON, "the new pod has the new version", || async {
        let new = docker.containers().await.into_iter().find(|one| one.id != container.id && one.running);
        let Some(new) = new else { return Err("no new container".to_owned()) };
        let found = docker.archive(&new.id, "/run/secrets/db_password").await;
        check(is_in(&found, SECOND), || "another version".to_owned())
    })
    .await;
    let (_, same) = http.send(Method::PUT, "/secret/db_password", Some(&json!({"value": SECOND}))).await;
    assert_eq!(same["version"], 2, "{same}");
    let pending: u64 = cluster.redis.cli(&["HLEN", "rollouts"]).await;
    assert_eq!((pending, &http.get("/service/web").await["generation"]), (0, &json!(2)));
    search_everywhere(&cluster, &docker, &[&api, &scheduler, &worker], &api).await;

    worker.kill();
    for left in docker.containers().await {
        docker.remove(&left.id).await;
    }
    http.send(Method::DELETE, "/service/web", None).await;
    assert!(!directories(&cluster.node("w1")).is_empty(), "the worker had no time to remove them");
    worker.start_again();
    eventually_within(SOON * 2, "no file is left in memory", || async {
        let left = directories(&cluster.node("w1"));
        check(left.is_empty(), || format!("{left:?}\n{}", worker.log()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_a_secret_is_refused_and_a_pod_that_needs_one_waits() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let key = write_key(&cluster);
    let settings = [("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap())];
    let (api, _scheduler) = (cluster.api_with(&settings).await, cluster.scheduler());
    let keyless = cluster.api().await;
    let secret = json!({"name": "db", "value": FIRST});
    let (status, refused) = keyless.http().send(Method::POST, "/secret", Some(&secret)).await;
    assert_eq!(
        (status.as_u16(), &refused["type"]),
        (409, &json!("/problems/secret-key-missing")),
        "{refused}"
    );
    let _worker = cluster.worker("w1", "docker");
    let http = api.http();
    http.nodes_ready(1).await;
    http.post("/secret", &secret).await;
    http.post("/service", &json!({"name": "web", "image": IMAGE, "secrets": ["db"]})).await;
    eventually_within(SOON, "the pod says what the node lacks", || async {
        let pods = http.pods("service=web").await;
        let message = pods.first().and_then(|pod| pod["message"].as_str()).unwrap_or_default();
        check(message.contains("KUBELEET_SECRET_KEY_FILE"), || format!("{pods:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_with_a_signal_is_replaced_in_the_container_that_runs() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut worker = cluster.worker("w1", "docker");
    let http = api.http();
    http.nodes_ready(1).await;
    let command = "trap 'read x < /app.conf; echo \"has $x\"' USR1; trap 'exit 0' TERM; read x < /app.conf; \
        echo \"has $x\"; while :; do sleep 86400 & wait $!; done";
    let config = |port: u32| json!({"value": format!("listen {port}\n")});
    let mut first = config(80);
    first["name"] = "app.conf".into();
    http.post("/config", &first).await;
    http.post(
        "/service",
        &json!({"name": "web", "image": IMAGE, "command": ["/bin/sh", "-c", command],
            "configs": [{"source": "app.conf", "on_change": "signal", "signal": "USR1"}]}),
    )
    .await;
    http.runs(SOON, "web", 1).await;
    let pod = http.pods("service=web").await[0]["uuid"].as_str().unwrap().to_owned();
    let until_says = async |worker: &DaemonProcess, expected: &str| {
        eventually_within(SOON, &format!("the container says {expected:?}"), || async {
            let log = http.stream(&format!("/pod/{pod}/log?follow=false")).await.text().await;
            let log = log.unwrap_or_default();
            check(log.lines().last() == Some(expected), || format!("{log}\n{}", worker.log()))
        })
        .await;
    };
    until_says(&worker, "has listen 80").await;
    http.send(Method::PUT, "/config/app.conf", Some(&config(81))).await;
    until_says(&worker, "has listen 81").await;
    worker.kill();
    http.send(Method::PUT, "/config/app.conf", Some(&config(82))).await;
    worker.start_again();
    until_says(&worker, "has listen 82").await;
    let pods = http.pods("service=web").await;
    assert_eq!((pods.len(), &pods[0]["uuid"], &pods[0]["restarts"]), (1, &json!(pod), &json!(0)), "{pods:?}");
}
