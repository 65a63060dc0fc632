//! Private registries: a real engine pulls from a registry on loopback.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kubeleet_tests::cluster::DaemonProcess;
use kubeleet_tests::docker::Docker;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::registry::{Asks, Registry};
use kubeleet_tests::{Cluster, ClusterTiming};
use reqwest::Method;
use serde_json::json;
use testkit::eventually::{check, eventually_within};

use crate::SOON;

/// What every password of this test begins with.
const SECRET: &str = "Hunter-In-The-Clear";

fn config_of(registry: &Registry, user: &str, password: &str) -> String {
    let auth = STANDARD.encode(format!("{user}:{password}"));
    json!({"auths": {registry.host(): {"auth": auth}}}).to_string()
}

/// Waits until the pods of a service say why they wait.
async fn until_says(http: &Http, service: &str, expected: &[&str]) {
    eventually_within(SOON, &format!("{service} says {expected:?}"), || async {
        let pods = http.pods(&format!("service={service}")).await;
        let message = pods.first().and_then(|pod| pod["message"].as_str()).unwrap_or_default();
        check(expected.iter().all(|part| message.contains(part)), || format!("{pods:?}"))
    })
    .await;
}

async fn log_in(http: &Http, registry: &Registry, user: &str, password: &str) {
    let login = json!({"user": user, "password": password});
    let path = format!("/registry/{}", registry.host());
    let (status, answer) = http.send(Method::PUT, &path, Some(&login)).await;
    assert_eq!((status.as_u16(), &answer["user"]), (200, &json!(user)), "{answer}");
}

/// Asserts that no password is anywhere.
async fn has_no_password(cluster: &Cluster, api: &DaemonProcess, worker: &DaemonProcess) {
    let logins: Vec<String> = {
        let keys: Vec<String> = cluster.redis.cli(&["KEYS", "registry:*"]).await;
        let mut found = Vec::new();
        for key in keys {
            found.extend(cluster.redis.cli::<Vec<String>>(&["HGETALL", &key]).await);
        }
        found
    };
    let http = api.http();
    let mut places = vec![logins.join(" "), api.whole_log(), worker.whole_log()];
    for path in ["/registry", "/pod", "/event?follow=false"] {
        places.push(http.try_send(Method::GET, path, None).await.unwrap().text().await.unwrap());
    }
    for place in places {
        assert!(!place.contains(SECRET) && !place.contains("LUluLVRoZS1DbGVhci"), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_with_the_nodes_own_credentials_and_if_they_are_refused_with_the_clusters() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let registry = Registry::start(Asks::Basic).await;
    let key = cluster.folder().join("secret-key");
    std::fs::write(&key, common::secret_key::SecretKey::generate().unwrap()).unwrap();
    let config = cluster.folder().join("config.json");
    std::fs::write(&config, config_of(&registry, "bob", &format!("{SECRET}-0"))).unwrap();
    let settings = [("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap()), ("KUBELEET_LOG", "debug")];
    let (api, _scheduler) = (cluster.api_with(&settings).await, cluster.scheduler());
    let own = [settings[0], settings[1], ("KUBELEET_REGISTRY_CONFIG", config.to_str().unwrap())];
    let worker = cluster.worker_with("w1", "docker", &own);
    let http = api.http();
    http.nodes_ready(1).await;

    // The node's own are refused, and then those of the cluster.
    registry.allow_only(Some(("ann", &format!("{SECRET}-1"))));
    log_in(&http, &registry, "ann", &format!("{SECRET}-0")).await;
    http.post("/service", &json!({"name": "web", "image": registry.image("1")})).await;
    let used = format!(
        "credentials used for {}: user bob of {}, then user ann of `kubeleet registry login`; ",
        registry.host(),
        config.display()
    );
    until_says(&http, "web", &[&used]).await;
    log_in(&http, &registry, "ann", &format!("{SECRET}-1")).await;
    http.runs(SOON, "web", 1).await;

    // A password that was changed is used from the next pull on.
    registry.allow_only(Some(("ann", &format!("{SECRET}-2"))));
    log_in(&http, &registry, "ann", &format!("{SECRET}-2")).await;
    http.post("/service", &json!({"name": "api", "image": registry.image("2")})).await;
    http.runs(SOON, "api", 1).await;

    // So is a file that was changed, without those of the cluster.
    let path = format!("/registry/{}", registry.host());
    let (status, _) = http.send(Method::DELETE, &path, None).await;
    assert_eq!(status.as_u16(), 409, "services pull from it");
    let (status, _) = http.send(Method::DELETE, &format!("{path}?force=true"), None).await;
    assert_eq!(status.as_u16(), 204);
    std::fs::write(&config, config_of(&registry, "ann", &format!("{SECRET}-2"))).unwrap();
    http.post("/service", &json!({"name": "file", "image": registry.image("3")})).await;
    http.runs(SOON, "file", 1).await;
    has_no_password(&cluster, &api, &worker).await;
    drop(worker);
    remove_images(&docker, &registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_asks_for_a_token_gets_the_login_and_an_open_one_needs_none() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let registry = Registry::start(Asks::Bearer).await;
    let key = cluster.folder().join("secret-key");
    std::fs::write(&key, common::secret_key::SecretKey::generate().unwrap()).unwrap();
    let home = cluster.folder().to_str().unwrap().to_owned();
    let settings = [("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap()), ("DOCKER_CONFIG", &home)];
    let (api, _scheduler) = (cluster.api_with(&settings).await, cluster.scheduler());
    let worker = cluster.worker_with("w1", "docker", &settings);
    let http = api.http();
    http.nodes_ready(1).await;
    http.post("/service", &json!({"name": "open", "image": registry.image("1")})).await;
    http.runs(SOON, "open", 1).await;
    registry.allow_only(Some(("ann", &format!("{SECRET}-1"))));
    http.post("/service", &json!({"name": "web", "image": registry.image("2")})).await;
    until_says(&http, "web", &[&format!("credentials used for {}: none; ", registry.host())]).await;
    log_in(&http, &registry, "ann", &format!("{SECRET}-1")).await;
    http.runs(SOON, "web", 1).await;
    has_no_password(&cluster, &api, &worker).await;
    drop(worker);
    remove_images(&docker, &registry).await;
}

async fn remove_images(docker: &Docker, registry: &Registry) {
    for container in docker.containers().await {
        docker.remove(&container.id).await;
    }
    for tag in ["1", "2", "3"] {
        docker.remove_image(&registry.image(tag)).await;
    }
}
