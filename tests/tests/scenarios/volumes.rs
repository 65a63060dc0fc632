//! Volumes on a real container engine.

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming, command};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

const COMMAND: &str = "for d in /data /cache; do if [ -e $d/mark ]; then echo found $d; else echo new $d; fi; \
    echo x > $d/mark; done; trap 'exit 0' TERM; sleep 86400 & wait $!";

/// Returns its uuid and node.
async fn until_runs(http: &Http, former: Option<&str>) -> (String, String) {
    eventually_within(SOON * 2, "another pod runs", || async {
        let pods = http.pods("service=db").await;
        let running: Vec<&Value> =
            pods.iter().filter(|pod| pod["phase"] == "running" && pod["uuid"].as_str() != former).collect();
        let text = |pod: &Value, field: &str| pod[field].as_str().unwrap_or_default().to_owned();
        match running[..] {
            [pod] => Ok((text(pod, "uuid"), text(pod, "node"))),
            _ => Err(format!("{pods:?}")),
        }
    })
    .await
}

/// Returns its uuid and node.
async fn first_pod(http: &Http) -> (String, String) {
    let service = json!({"name": "db", "image": IMAGE, "command": ["/bin/sh", "-c", COMMAND],
        "volumes": ["data:/data", "/cache"]});
    http.post("/service", &service).await;
    let (pod, node) = until_runs(http, None).await;
    until_says(http, &pod, &["new /data", "new /cache"]).await;
    (pod, node)
}

async fn until_says(http: &Http, pod: &str, lines: &[&str]) {
    eventually_within(SOON, &format!("{pod} says {lines:?}"), || async {
        let stream = http.stream(&format!("/pod/{pod}/log?follow=false")).await;
        let log = stream.text().await.unwrap_or_default();
        check(log.lines().map(str::trim).collect::<Vec<_>>() == lines, || log.clone())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persistent_volume_outlives_its_pod_on_its_node_and_a_local_one_goes_with_it() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "docker", 6));
    let http = api.http();
    http.nodes_ready(2).await;
    let (first, node) = first_pod(&http).await;
    assert_eq!(docker.volumes().await.len(), 2);

    http.send(Method::POST, "/service/db/restart", None).await;
    let (second, again) = until_runs(&http, Some(&first)).await;
    assert_eq!(again, node, "its data is there");
    until_says(&http, &second, &["found /data", "new /cache"]).await;
    eventually_within(SOON, "the former local volume is gone", || async {
        let left = docker.volumes().await;
        check(left.len() == 2, || format!("{left:?}"))
    })
    .await;
    let (status, body) = http.send(Method::DELETE, "/volume/db_data_0", None).await;
    assert_eq!((status.as_u16(), &body["type"]), (409, &json!("/problems/volume-in-use")), "{body}");

    http.send(Method::DELETE, "/service/db?volumes=true", None).await;
    let short = if node == cluster.node("w1") { 0 } else { 1 };
    workers[short].kill();
    workers[short] = cluster.small_worker(["w1", "w2"][short], "docker", 6);
    eventually_within(SOON * 2, "no volume is left", || async {
        let (left, listed) = (docker.volumes().await, http.get("/volume").await);
        check(left.is_empty() && listed["items"] == json!([]), || format!("{left:?} {listed}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_the_node_that_has_its_data() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    // Dropped after the workers, which would create its volumes again.
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "docker", 6));
    let http = api.http();
    http.nodes_ready(2).await;
    let (first, node) = first_pod(&http).await;
    let short = if node == cluster.node("w1") { 0 } else { 1 };
    workers[short].kill();
    eventually_within(SOON * 2, "it waits and says why", || async {
        let pods = http.pods("service=db").await;
        let message = pods[0]["message"].as_str().unwrap_or_default();
        let why = format!("VolumeElsewhere (its data is on {node}: volume db_data_0)");
        check(message.contains(&why), || format!("{pods:?}"))
    })
    .await;
    workers[short] = cluster.small_worker(["w1", "w2"][short], "docker", 6);
    eventually_within(SOON * 2, "it runs there again with its data", || async {
        let pods = http.pods("service=db").await;
        check(pods[0]["phase"] == "running" && pods[0]["node"] == node.as_str(), || format!("{pods:?}"))
    })
    .await;
    until_says(&http, &first, &["found /data", "new /cache"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_of_the_host_is_mounted_where_the_node_allows_it_and_a_link_leads_no_further() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (allowed, outside) = (folder.path().join("allowed"), folder.path().join("outside"));
    std::fs::create_dir(&allowed).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, allowed.join("link")).unwrap();
    let prefix = allowed.to_str().unwrap();
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.worker_with("w1", "docker", &[("KUBELEET_BIND_PREFIXES", prefix)]);
    let http = api.http();
    http.nodes_ready(1).await;
    let command = "echo written > /out/mark; trap 'exit 0' TERM; sleep 86400 & wait $!";
    let service = |name: &str, path: &str| json!({"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", command], "volumes": [format!("{path}:/out")]});
    http.post("/service", &service("db", prefix)).await;
    http.post("/service", &service("link", &format!("{prefix}/link"))).await;
    let (_, refused) = http.send(Method::POST, "/service", Some(&service("etc", "/etc"))).await;
    assert_eq!(refused["type"], "/problems/insufficient-permission", "{refused}");
    http.post("/service?allow_partial=true", &service("etc", "/etc")).await;
    until_runs(&http, None).await;
    eventually_within(SOON, "the container writes to the folder", || async {
        let written = std::fs::read_to_string(allowed.join("mark")).unwrap_or_default();
        check(written == "written\n", || written.clone())
    })
    .await;
    for (name, phase, part) in [
        ("link", "failed", "below none of KUBELEET_BIND_PREFIXES"),
        ("etc", "pending", "KUBELEET_BIND_PREFIXES of the node, and /etc is not"),
    ] {
        eventually_within(SOON, &format!("{name} is refused"), || async {
            let pods = http.pods(&format!("service={name}")).await;
            let is_refused = pods.iter().any(|pod| {
                pod["phase"] == phase && pod["message"].as_str().is_some_and(|why| why.contains(part))
            });
            check(is_refused, || format!("{pods:?}"))
        })
        .await;
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_two_nodes_share_a_volume_and_a_node_with_another_directory_gets_none_of_them() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (directory("right"), directory("wrong"));
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let http = api.http();
    let worker = |short: &str, path: &str| {
        let settings = [("KUBELEET_SHARED_VOLUMES_DIR", path), ("KUBELEET_MAX_PODS", "2")];
        cluster.worker_with(short, "docker", &settings)
    };
    let state = |short: &'static str, part: &'static str| {
        let (node, http) = (cluster.node(short), &http);
        async move {
            eventually_within(SOON, &format!("{short} says {part}"), || async {
                let found = http.get(&format!("/node/{node}")).await;
                let is_there = found["shared_volumes"].as_str().is_some_and(|state| state.contains(part));
                check(is_there, || found.to_string())
            })
            .await;
        }
    };
    let _w1 = worker("w1", &right);
    http.nodes_ready(1).await;
    state("w1", "ready").await;
    let (_w2, _w3) = (worker("w2", &right), worker("w3", &wrong));
    http.nodes_ready(3).await;
    state("w2", "ready").await;
    state("w3", "no file that identifies it").await;
    assert_eq!(std::fs::read_dir(&wrong).unwrap().count(), 0);

    let command = "echo $HOSTNAME >> /up/hosts; trap 'exit 0' TERM; sleep 86400 & wait $!";
    let up = json!({"source": "up", "target": "/up", "kind": "shared"});
    let service = json!({"name": "db", "image": IMAGE, "command": ["/bin/sh", "-c", command], "replicas": 4,
        "user": "1000", "volumes": [up]});
    http.post("/service", &service).await;
    let hosts = std::path::Path::new(&right).join("db_up_shared/hosts");
    eventually_within(SOON * 2, "four pods on two nodes have written", || async {
        let written = std::fs::read_to_string(&hosts).unwrap_or_default();
        let nodes: std::collections::BTreeSet<String> = http
            .pods("service=db")
            .await
            .iter()
            .map(|pod| pod["node"].as_str().unwrap_or_default().to_owned())
            .collect();
        let expected = ["w1", "w2"].map(|short| cluster.node(short));
        check(written.lines().count() == 4 && nodes.into_iter().eq(expected), || written.clone())
    })
    .await;

    http.send(Method::POST, "/service/db/scale", Some(&json!({"replicas": 5}))).await;
    eventually_within(SOON, "the fifth waits and says why", || async {
        let pods = http.pods("service=db").await;
        let why =
            |pod: &Value| pod["message"].as_str().is_some_and(|why| why.contains("1 NoSharedDirectory"));
        check(pods.iter().any(why), || format!("{pods:?}"))
    })
    .await;
    http.send(Method::DELETE, "/service/db?volumes=true", None).await;
    eventually_within(SOON * 2, "no volume is left", || async {
        let (left, listed) = (std::fs::read_dir(&right).unwrap().count(), http.get("/volume").await);
        check(left == 1 && listed["items"] == json!([]), || format!("{left} {listed}"))
    })
    .await;
}

/// Only the backup says which node has the data.
#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_and_restore_a_pod_goes_to_the_node_with_its_data() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "docker", 6));
    let http = api.http();
    http.nodes_ready(2).await;
    let (_, node) = first_pod(&http).await;
    let file = cluster.folder().join("backup");
    let file = file.to_str().unwrap();
    command(&http, &["backup", file]).await.unwrap();

    workers.iter_mut().for_each(|worker| worker.kill());
    for container in docker.containers().await {
        docker.remove(&container.id).await;
    }
    let () = cluster.redis.cli(&["FLUSHALL"]).await;
    let planned = command(&http, &["restore", file]).await.unwrap();
    assert!(http.get("/service").await["items"] == json!([]), "{planned}");
    let restored = command(&http, &["restore", file, "--yes"]).await.unwrap();
    let volume = http.get("/volume/db_data_0").await;
    assert_eq!(volume["node"].as_str(), Some(node.as_str()), "{restored}\n{volume}");

    // It would start the pod on an empty volume.
    let (own, other) = if node == cluster.node("w1") { (0, 1) } else { (1, 0) };
    workers[other] = cluster.small_worker(["w1", "w2"][other], "docker", 6);
    http.nodes_ready(1).await;
    workers[own] = cluster.small_worker(["w1", "w2"][own], "docker", 6);
    let (second, again) = until_runs(&http, None).await;
    assert_eq!(again, node, "its data is there");
    until_says(&http, &second, &["found /data", "new /cache"]).await;
}
