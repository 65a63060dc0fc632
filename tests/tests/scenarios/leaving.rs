//! `node leave` and `node return`, as the unit `kubeleet-handover` runs them.

use std::path::{Path, PathBuf};

use kubeleet_tests::cluster::binary;
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::{Cluster, ClusterTiming};
use reqwest::Method;
use serde_json::json;
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

/// Its exit code and its output.
async fn run(what: &str, node: &str, marker: &Path, http: &Http) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(binary());
    let api = format!("http://{}", http.address());
    command.args(["node", what, node, "--timeout", "20s", "--api", &api, "--marker"]).arg(marker);
    let output = command.output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

async fn pods_on(http: &Http, node: &str) -> usize {
    http.pods(&format!("node={node}")).await.iter().filter(|pod| pod["phase"] == "running").count()
}

async fn is_cordoned(http: &Http, node: &str) -> bool {
    http.get(&format!("/node/{node}")).await["cordoned"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_shuts_down_hands_its_pods_over_and_gets_new_ones_when_it_is_back() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let http = api.http();
    let (w1, w2) = (cluster.node("w1"), cluster.node("w2"));
    let marker: PathBuf = cluster.folder().join("cordoned");
    let _first = cluster.small_worker("w1", "process", 20);
    http.nodes_ready(1).await;
    http.post("/service", &sleeper("web", 4, "keep")).await;
    http.runs(SOON, "web", 4).await;

    let (code, said) = run("leave", &w1, &marker, &http).await;
    assert!(code == Some(0) && said.contains("no other node takes pods"), "{code:?}: {said}");
    assert_eq!((pods_on(&http, &w1).await, marker.exists()), (4, false));

    let _second = cluster.small_worker("w2", "process", 20);
    http.nodes_ready(2).await;
    let (code, said) = run("leave", &w1, &marker, &http).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((pods_on(&http, &w1).await, pods_on(&http, &w2).await), (0, 4), "{said}");
    assert!(is_cordoned(&http, &w1).await && marker.exists());
    let (code, said) = run("return", &w1, &marker, &http).await;
    assert_eq!((code, is_cordoned(&http, &w1).await, marker.exists()), (Some(0), false, false), "{said}");

    http.send(Method::POST, &format!("/node/{w2}/cordon"), None).await;
    let (code, said) = run("leave", &w2, &marker, &http).await;
    assert_eq!((code, pods_on(&http, &w2).await, marker.exists()), (Some(0), 0, true), "{said}");
    run("return", &w2, &marker, &http).await;
    let node = http.get(&format!("/node/{w2}")).await;
    assert_eq!((&node["cordoned"], &node["drain"]), (&true.into(), &serde_json::Value::Null), "as before");

    // A service that fits nowhere else delays no other one.
    http.send(Method::POST, &format!("/node/{w2}/uncordon"), None).await;
    // One pod per node, because they use a host port.
    let mut bound = sleeper("bound", 2, "keep");
    bound["ports"] = json!([format!("{}:80", free_port())]);
    http.post("/service", &bound).await;
    http.runs(SOON, "bound", 2).await;
    let (code, said) = run("leave", &w1, &marker, &http).await;
    assert!(
        code != Some(0) && said.contains("no replacement was ready within --timeout for bound"),
        "{said}"
    );
    eventually_within(SOON, "all pods of the other service have moved", || async {
        let there = http.pods(&format!("service=web&node={w2}&phase=running")).await.len();
        check(there == 4, || there.to_string())
    })
    .await;
}
