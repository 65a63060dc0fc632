//! `examples/memo`: an application of several containers with shared and local volumes.

use std::path::Path;
use std::time::Duration;

use kubeleet_tests::docker::Docker;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Http, command};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

const SOON: Duration = Duration::from_secs(120);

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/memo/memo.yaml");

async fn until_ready(http: &Http, docker: &Docker, count: usize) {
    eventually_within(SOON, &format!("{count} instances are ready"), || async {
        let (pods, volumes) = (http.pods("service=memo").await, docker.volumes().await);
        let is_ready =
            |pod: &&Value| pod["phase"] == "running" && pod["reason"].as_str().is_none_or(str::is_empty);
        let ready = pods.iter().filter(is_ready).count();
        let running = docker.running().await.len();
        let is_it = (pods.len(), ready, running, volumes.len()) == (count, count, 3 * count, 2 * count);
        check(is_it, || format!("{ready} ready, {running} containers, volumes {volumes:?}, {pods:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_memo_is_started_scaled_and_deleted_without_a_trace() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Medium).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    docker.make_memo_images().await;
    let shared = cluster.folder().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let settings = [
        ("KUBELEET_SHARED_VOLUMES_DIR", shared.to_str().unwrap()),
        ("KUBELEET_DISK", "12GiB"),
        ("KUBELEET_MEMORY", "4GiB"),
        ("KUBELEET_CPUS", "2"),
    ];
    let _workers = ["w1", "w2"].map(|short| cluster.worker_with(short, "docker", &settings));
    let http = api.http();
    http.nodes_ready(2).await;

    command(&http, &["apply", "-f", FILE]).await.unwrap();
    until_ready(&http, &docker, 3).await;
    let hosts = |shared: &Path| {
        let text = std::fs::read_to_string(shared.join("memo_uploads_shared/hosts")).unwrap_or_default();
        text.lines().count()
    };
    assert_eq!(hosts(&shared), 3, "all have written to the one volume");
    let nodes = http.get("/node").await;
    let used = |node: &Value| node["used"]["disk_bytes"].as_u64().unwrap_or_default();
    let used: u64 = nodes["items"].as_array().unwrap().iter().map(used).sum();
    assert_eq!(used, 3 * (3 << 30), "{nodes}");

    let (status, problem) =
        http.send(reqwest::Method::POST, "/service/memo/scale", Some(&json!({"replicas": 9}))).await;
    let detail = "requires 18G of disk but only 15G can be allocated";
    assert_eq!((status.as_u16(), problem["detail"].as_str()), (409, Some(detail)), "{problem}");
    assert_eq!(problem["type"], "/problems/insufficient-disk");

    for (replicas, written) in [(5, 5), (1, 5)] {
        command(&http, &["scale", "memo", &replicas.to_string()]).await.unwrap();
        until_ready(&http, &docker, replicas).await;
        assert_eq!(hosts(&shared), written);
    }
    let listed = command(&http, &["volume", "ls"]).await.unwrap();
    assert!(listed.contains("memo_uploads_shared"), "{listed}");

    command(&http, &["service", "rm", "memo", "--volumes", "--yes"]).await.unwrap();
    eventually_within(SOON, "nothing of it is left", || async {
        let (containers, volumes) = (docker.containers().await, docker.volumes().await);
        let (listed, folders) = (http.get("/volume").await, std::fs::read_dir(&shared).unwrap().count());
        let is_gone = containers.is_empty() && volumes.is_empty() && listed["items"] == json!([]);
        // The file that identifies the directory stays.
        check(is_gone && folders == 1, || format!("{containers:?} {volumes:?} {listed} {folders}"))
    })
    .await;
}
