//! Services that depend on each other, on a real engine.

use std::time::Duration;

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Http};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

/// Three containers start one after the other, on a shared engine.
const SOON: Duration = Duration::from_secs(60);

const DATABASE: &str = "echo no > /ready; sleep 2; echo yes > /ready; while :; do sleep 1; done";

fn database(name: &str) -> Value {
    json!({"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", DATABASE], "stop_grace_period": 0,
        "healthcheck": {"test": ["CMD", "/bin/sh", "-c", "read x < /ready; test \"$x\" = yes"], "interval": "500ms",
            "start_period": "30s", "start_interval": "200ms"}})
}

async fn pod(http: &Http, service: &str) -> Value {
    http.pods(&format!("service={service}")).await.into_iter().next().unwrap_or_default()
}

async fn ready(cluster: &Cluster, docker: &Docker, http: &Http, service: &str) -> (String, i64, i64) {
    let uuid = eventually_within(SOON, &format!("{service} is ready"), || async {
        let pod = pod(http, service).await;
        let is_ready = pod["phase"] == "running" && pod["reason"].as_str().is_none_or(str::is_empty);
        match pod["uuid"].as_str() {
            Some(uuid) if is_ready => Ok(uuid.to_owned()),
            _ => Err(pod.to_string()),
        }
    })
    .await;
    let since: Option<String> = cluster.redis.cli(&["HGET", &format!("pod:{uuid}"), "ready_since"]).await;
    let [starts, _] = docker.starts_and_ends(&uuid).await;
    let last = starts.last().copied().unwrap_or_default();
    (uuid, last, since.and_then(|since| since.parse().ok()).unwrap_or_default())
}

async fn until_waits(http: &Http, service: &str, message: &str) {
    eventually_within(SOON, &format!("{service} waits"), || async {
        let pod = pod(http, service).await;
        let is_it = pod["message"].as_str().is_some_and(|found| found.starts_with(message));
        check(is_it && pod["reason"] == "WaitingForDependencies", || pod.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_started_in_their_order_also_after_everything_was_down() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Medium).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut worker = cluster.worker_with("w1", "docker", &[("KUBELEET_RESTART_BACKOFF", "500ms")]);
    let http = api.http();
    http.nodes_ready(1).await;
    // In the wrong order: dependencies come later.
    let web = json!({"name": "web", "image": IMAGE, "stop_grace_period": 0,
        "depends_on": {"migrate": "service_completed_successfully", "db": "service_healthy"}});
    http.post("/service", &web).await;
    until_waits(&http, "web", "waits for service db, which does not exist").await;
    let migrate = json!({"name": "migrate", "image": IMAGE, "command": ["/bin/sh", "-c", "sleep 1"],
        "restart": "on-failure", "depends_on": {"db": "service_healthy"}});
    http.post("/service", &migrate).await;
    http.post("/service", &database("db")).await;
    until_waits(&http, "migrate", "waits for service db: 0 of 1 ready").await;
    let (status, refused) =
        http.send(Method::PATCH, "/service/db", Some(&json!({"depends_on": ["web"]}))).await;
    assert_eq!(status.as_u16(), 422, "{refused}");
    assert!(refused["detail"].to_string().contains("a circle: db -> web -> db"), "{refused}");

    let (_, _, db_ready) = ready(&cluster, &docker, &http, "db").await;
    let (_, web_started, _) = ready(&cluster, &docker, &http, "web").await;
    let migrated = pod(&http, "migrate").await;
    assert_eq!(migrated["phase"], "succeeded", "{migrated}");
    let [migrate_started, migrate_ended] = docker.starts_and_ends(migrated["uuid"].as_str().unwrap()).await;
    assert!(migrate_started[0] >= db_ready && web_started >= migrate_ended[0], "{migrated}");

    worker.kill();
    for container in docker.containers().await.into_iter().filter(|container| container.running) {
        docker.kill(&container.id).await;
    }
    worker.start_again();
    until_waits(&http, "web", "waits for service db: 0 of 1 ready").await;
    let (_, _, db_again) = ready(&cluster, &docker, &http, "db").await;
    let (_, web_again, _) = ready(&cluster, &docker, &http, "web").await;
    assert!(db_again > db_ready && web_again >= db_again, "{db_ready} {db_again} {web_started} {web_again}");

    http.send(Method::DELETE, "/service/db", None).await;
    http.post("/service", &json!({"name": "late", "image": IMAGE, "depends_on": ["db"]})).await;
    until_waits(&http, "late", "waits for service db").await;
    http.send(Method::DELETE, "/service/late", None).await;
    eventually_within(SOON, "it is gone", || async {
        let (status, _) = http.send(Method::GET, "/service/late", None).await;
        check(status.as_u16() == 404, || status.to_string())
    })
    .await;
    assert_eq!(ready(&cluster, &docker, &http, "web").await.1, web_again, "it was not started again");
}
