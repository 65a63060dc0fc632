//! A real engine pulls from a private registry on loopback.

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

const SECRET: &str = "Hunter-In-The-Clear";

fn config_of(registry: &Registry, user: &str, password: &str) -> String {
    let auth = STANDARD.encode(format!("{user}:{password}"));
    json!({"auths": {registry.host(): {"auth": auth}}}).to_string()
}

async fn until_says(http: &Http, service: &str, expected: &[&str]) {
    eventually_within(SOON, &format!("{service} says {expected:?}"), || async {
        let pods = http.pods(&format!("service={service}")).await;
        let messages = pods.iter().filter_map(|pod| pod["message"].as_str());
        let says = messages.into_iter().any(|message| expected.iter().all(|part| message.contains(part)));
        check(says, || format!("{pods:?}"))
    })
    .await;
}

async fn log_in(http: &Http, registry: &Registry, user: &str, password: &str) {
    let login = json!({"user": user, "password": password});
    let path = format!("/registry/{}", registry.host());
    let (status, answer) = http.send(Method::PUT, &path, Some(&login)).await;
    assert_eq!((status.as_u16(), &answer["user"]), (200, &json!(user)), "{answer}");
}

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
    std::fs::write(&key, model::value::secret_key::SecretKey::generate().unwrap()).unwrap();
    let config = cluster.folder().join("config.json");
    std::fs::write(&config, config_of(&registry, "bob", &format!("{SECRET}-0"))).unwrap();
    let settings = [("KUBELEET_SECRET_KEY_FILE", key.to_str().unwrap()), ("KUBELEET_LOG", "debug")];
    let (api, _scheduler) = (cluster.api_with(&settings).await, cluster.scheduler());
    let own = [settings[0], settings[1], ("KUBELEET_REGISTRY_CONFIG", config.to_str().unwrap())];
    let worker = cluster.worker_with("w1", "docker", &own);
    let http = api.http();
    http.nodes_ready(1).await;

    registry.allow_only(Some(("ann", &format!("{SECRET}-0"))));
    log_in(&http, &registry, "ann", &format!("{SECRET}-0")).await;
    registry.allow_only(Some(("ann", &format!("{SECRET}-1"))));
    let wrong = json!({"user": "ann", "password": format!("{SECRET}-9")});
    let path = format!("/registry/{}", registry.host());
    let (status, refused) = http.send(Method::PUT, &path, Some(&wrong)).await;
    let detail = refused["detail"].as_str().unwrap_or_default();
    assert!(status.as_u16() == 422 && detail.contains("refuses this user and password"), "{refused}");
    let elsewhere = json!({"user": "ann", "password": format!("{SECRET}-9")});
    let (status, stored) = http.send(Method::PUT, "/registry/127.0.0.1:1", Some(&elsewhere)).await;
    let warning = stored["warning"].as_str().unwrap_or_default();
    assert!(status.as_u16() == 200 && warning.contains("was not checked"), "{stored}");
    http.post("/service", &json!({"name": "web", "image": registry.image("1")})).await;
    let used = format!(
        "credentials used for {}: user bob of {}, then user ann of `kubeleet registry login`; ",
        registry.host(),
        config.display()
    );
    until_says(&http, "web", &[&used]).await;
    log_in(&http, &registry, "ann", &format!("{SECRET}-1")).await;
    http.runs(SOON, "web", 1).await;

    registry.allow_only(Some(("ann", &format!("{SECRET}-2"))));
    log_in(&http, &registry, "ann", &format!("{SECRET}-2")).await;
    http.post("/service", &json!({"name": "api", "image": registry.image("2")})).await;
    http.runs(SOON, "api", 1).await;

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
    std::fs::write(&key, model::value::secret_key::SecretKey::generate().unwrap()).unwrap();
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

async fn digests(http: &Http, service: &str) -> Vec<String> {
    let pods = http.pods(&format!("service={service}")).await;
    let running = pods.iter().filter(|pod| pod["phase"] == "running");
    let digest = |pod: &serde_json::Value| pod["images"][0]["digest"].as_str().unwrap_or("none").to_owned();
    let mut digests: Vec<String> = running.map(digest).collect();
    digests.sort();
    digests.dedup();
    digests
}

async fn until_all_have(http: &Http, pods: u64, digest: &str) {
    eventually_within(SOON, &format!("{pods} pods have {digest}"), || async {
        let service = http.get("/service/web").await;
        let found = digests(http, "web").await;
        let is_reached = service["status"]["summary"] == "ready" && service["status"]["updated"] == pods;
        check(is_reached && found == [digest], || format!("{found:?} {service}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_has_one_image_when_its_tag_moves_a_restart_another_and_an_undo_the_first_again() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let registry = Registry::start(Asks::Basic).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker("w1", "docker");
    let http = api.http();
    http.nodes_ready(1).await;
    let web = json!({"name": "web", "image": registry.image("1"), "stop_grace_period": 1});
    http.post("/service", &web).await;
    http.runs(SOON, "web", 1).await;
    let first = digests(&http, "web").await.remove(0);
    assert_eq!(http.get("/service/web").await["images"][0]["digest"], first.as_str());

    // As on a node that has pulled the tag since.
    let second = registry.move_tags();
    docker.pull(&registry.image("1")).await;
    http.post("/service/web/scale", &json!({"replicas": 2})).await;
    until_all_have(&http, 2, &first).await;
    assert_eq!(docker.image_ids().await.len(), 1, "what runs is what the records say");

    http.post("/service/web/restart", &json!({})).await;
    until_all_have(&http, 2, &second).await;
    let (status, undone) = http.send(Method::POST, "/service/web/undo", None).await;
    assert_eq!((status.as_u16(), &undone["generation"]), (200, &json!(3)), "{undone}");
    until_all_have(&http, 2, &first).await;

    // The registry lacks the first pod's image, and this node has an image of that name.
    let service: Vec<String> = cluster.redis.cli(&["HMGET", "service:web", "spec"]).await;
    let gone = format!("sha256:{}", "0".repeat(64));
    let pinned = format!("{} {gone} {gone}\n", registry.image("1"));
    let field = format!("images:{}", service[0]);
    let () = cluster.redis.cli(&["HSET", "service:web", &field, &pinned]).await;
    http.post("/service/web/scale", &json!({"replicas": 3})).await;
    http.runs(SOON, "web", 3).await;
    let status = &http.get("/service/web").await["status"];
    let warning = status["image_warning"].as_str().unwrap_or_default();
    assert!(warning.starts_with("3 of its pods do not have the image of generation 3"), "{status}");
    let events = http.try_send(Method::GET, "/event?follow=false", None).await.unwrap().text().await.unwrap();
    assert!(events.contains("ImageDiffers"), "{events}");

    docker.remove_image(&registry.image("1")).await;
    http.post("/service/web/scale", &json!({"replicas": 4})).await;
    until_says(&http, "web", &["the pods of this generation have ", &gone, "kubeleet restart"]).await;
    drop(worker);
    remove_images(&docker, &registry).await;
    let repository = registry.image("1").trim_end_matches(":1").to_owned();
    for digest in [first, second] {
        docker.remove_image(&format!("{repository}@{digest}")).await;
    }
}

async fn remove_images(docker: &Docker, registry: &Registry) {
    for container in docker.containers().await {
        docker.remove(&container.id).await;
    }
    for tag in ["1", "2", "3"] {
        docker.remove_image(&registry.image(tag)).await;
    }
}
