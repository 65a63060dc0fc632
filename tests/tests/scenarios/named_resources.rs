//! Named resources with real processes: each pod finds its own ids in its environment.

use std::collections::{BTreeMap, BTreeSet};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming, command};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

/// It writes which ids it has, whatever its specification says of the variable.
fn train(replicas: u64, version: &str) -> Value {
    json!({
        "name": "train", "image": "process", "replicas": replicas, "resources": {"gpu": 1},
        "environment": {"KUBELEET_RESOURCE_GPU": "stolen", "VERSION": version},
        "stop_grace_period": 0, "command": ["/bin/sh", "-c", "echo has gpu=$KUBELEET_RESOURCE_GPU; exec sleep 1000"],
    })
}

/// Node and id of each running pod, as its record says, if its output says the same.
async fn ids(http: &Http) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pod in http.pods("service=train&phase=running").await {
        let id = pod["resources"]["gpu"][0].as_str().unwrap_or_default();
        let log = format!("/pod/{}/log?tail=10", pod["uuid"].as_str().unwrap());
        let log = http.send(Method::GET, &log, None).await.1.as_str().unwrap_or_default().to_owned();
        if log.contains(&format!("has gpu={id}\n")) {
            found.push((pod["node"].as_str().unwrap().to_owned(), id.to_owned()));
        }
    }
    found.sort();
    found
}

async fn until_ids(http: &Http, expected: &[(String, String)]) {
    eventually_within(SOON, "each pod has an id of its own and says so", || async {
        let found = ids(http).await;
        check(found == expected, || format!("{found:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_has_ids_of_its_own_in_its_environment_also_after_an_update() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _schedulers) =
        (cluster.api().await, [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")]);
    let declared = [("w1", "gpu=0,1"), ("w2", "gpu=GPU-5 slots=2")];
    let _workers =
        declared.map(|(short, ids)| cluster.worker_with(short, "process", &[("KUBELEET_RESOURCES", ids)]));
    let [w1, w2] = ["w1", "w2"].map(|short| cluster.node(short).to_string());
    let http = api.http();
    http.nodes_ready(2).await;

    let (status, problem) = http.send(Method::POST, "/service", Some(&train(4, "1"))).await;
    let expected = (409, &json!("/problems/insufficient-resource"));
    assert_eq!((status.as_u16(), &problem["type"]), expected, "{problem}");
    assert_eq!((&problem["required"], &problem["allocatable"]), (&json!(4), &json!(3)), "{problem}");

    http.post("/service", &train(3, "1")).await;
    http.runs(SOON, "train", 3).await;
    let mut all =
        vec![(w1.clone(), "0".to_owned()), (w1.clone(), "1".to_owned()), (w2.clone(), "GPU-5".to_owned())];
    all.sort();
    until_ids(&http, &all).await;

    let node = http.get(&format!("/node/{w1}")).await;
    let expected = json!({"gpu": {"ids": ["0", "1"], "used": {"0": "train", "1": "train"}}});
    assert_eq!(node["resources"], expected, "{node}");
    let told = command(&http, &["node", "describe", &w2]).await.unwrap();
    assert!(told.contains("gpu: GPU-5 (train)") && told.contains("slots: 0, 1"), "{told}");

    let (status, stored) = http.send(Method::PUT, "/service/train", Some(&train(3, "2"))).await;
    assert!(status.is_success(), "{stored}");
    eventually_within(SOON, "all pods are replaced", || async {
        let service = http.get("/service/train").await;
        let status = &service["status"];
        let is_complete = status["ready"] == 3 && status["updated"] == 3 && status["stopping"] == 0;
        check(is_complete, || service.to_string())
    })
    .await;
    until_ids(&http, &all).await;

    let (status, _) = http.send(Method::PUT, "/service/train?allow_partial=true", Some(&train(4, "2"))).await;
    assert!(status.is_success());
    eventually_within(SOON, "the fourth pod waits and says why", || async {
        let pods = http.pods("service=train&phase=pending").await;
        let message = pods.first().map(|pod| pod["message"].to_string()).unwrap_or_default();
        check(message.contains("2 InsufficientResource (needs 1 gpu, 0 of 2 free)"), || message)
    })
    .await;
    let told = command(&http, &["explain", "pod", "train-3"]).await.unwrap();
    assert!(told.contains("needs 1 gpu, 0 of 1 free") && told.contains("another node like"), "{told}");
    let by_node: BTreeMap<String, BTreeSet<String>> =
        ids(&http).await.into_iter().fold(BTreeMap::new(), |mut by_node, (node, id)| {
            by_node.entry(node).or_insert_with(BTreeSet::new).insert(id);
            by_node
        });
    assert_eq!((by_node[&w1].len(), by_node[&w2].len()), (2, 1));
}
