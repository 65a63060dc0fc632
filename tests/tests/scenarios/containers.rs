//! A real container engine, observed as with `docker ps`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE, SAMPLE_IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_are_spread_over_two_nodes() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "docker", 6));
    let http = api.http();
    http.nodes_ready(2).await;
    let (status, created) = http
        .send(reqwest::Method::POST, "/service", Some(&json!({"name": "web", "image": IMAGE, "replica": 3})))
        .await;
    assert_eq!((status.as_u16(), &created["replicas"]), (201, &json!(3)), "{created}");
    http.runs(SOON, "web", 3).await;
    let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
    for container in docker.containers().await {
        *by_node.entry(container.node().to_owned()).or_default() += 1;
        assert!(container.running && container.name.starts_with("web-"), "{container:?}");
        assert_eq!(container.labels["orchestrator"], "kubeleet");
        assert_eq!(container.labels["kubeleet.service"], "web");
    }
    let mut counts: Vec<_> = by_node.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
    let mut replicas = Vec::new();
    for short in ["w1", "w2"] {
        let running: Vec<String> =
            cluster.redis.cli(&["SMEMBERS", &format!("cs:{}", cluster.node(short))]).await;
        for payload in running {
            let payload: Value = serde_json::from_str(&payload).unwrap();
            assert_eq!((&payload["name"], &payload["image"]), (&json!("web"), &json!(IMAGE)));
            assert!(payload["uuid"].is_string(), "{payload}");
            replicas.push(payload["replica"].as_u64().unwrap());
        }
    }
    replicas.sort_unstable();
    assert_eq!(replicas, [0, 1, 2]);
    cluster.comes_to_rest(SOON, &["w1", "w2"], || docker.running()).await;
    let (status, _) = http.send(reqwest::Method::DELETE, "/service/web", None).await;
    assert_eq!(status.as_u16(), 202);
    eventually_within(SOON, "the service and its containers are gone", || async {
        let left = docker.containers().await;
        let (status, _) = http.send(reqwest::Method::GET, "/service/web", None).await;
        check(left.is_empty() && status.as_u16() == 404, || format!("{status}, {left:?}"))
    })
    .await;
    cluster.comes_to_rest(SOON, &["w1", "w2"], || docker.running()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_pods_that_have_ended_go_with_their_service() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "docker", 6));
    let http = api.http();
    http.nodes_ready(2).await;
    let job = json!({"name": "job", "image": IMAGE, "command": ["/bin/sh", "-c", "exit 0"], "replicas": 4,
        "restart": "never"});
    http.post("/service", &job).await;
    eventually_within(SOON * 2, "all have ended", || async {
        let pods = http.pods("service=job").await;
        let ended = pods.iter().filter(|pod| pod["phase"] == "succeeded").count();
        check(ended == 4, || format!("{pods:?}"))
    })
    .await;
    assert_eq!(docker.containers().await.len(), 4);
    let begin = Instant::now();
    http.send(reqwest::Method::DELETE, "/service/job", None).await;
    eventually_within(SOON, "no container is left", || async {
        let left = docker.containers().await;
        check(left.is_empty(), || format!("{left:?}"))
    })
    .await;
    // Without the hint a worker checks every 30 s.
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_lpush_line_starts_one_container_despite_repetition_and_kills() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let mut worker = cluster.worker("w1", "docker");
    let queue = format!("pq:{}", cluster.node("w1"));
    let line =
        format!(r#"{{"name":"test","uuid":"djkf-{}","image":"{SAMPLE_IMAGE}","replica":3}}"#, cluster.prefix);
    let () = cluster.redis.cli(&["LPUSH", &queue, &line]).await;
    let first = eventually_within(SOON, "it runs", || async {
        let found = docker.containers().await;
        match found.as_slice() {
            [one] if one.running => Ok(one.clone()),
            other => Err(format!("{other:?}\n{}", worker.log())),
        }
    })
    .await;
    assert!(first.name.starts_with("test-3-"), "{}", first.name);
    cluster.comes_to_rest(SOON, &["w1"], || docker.running()).await;
    for round in ["pushed again", "pushed after a restart", "pushed while it is down"] {
        if round != "pushed again" {
            worker.kill();
        }
        if round == "pushed after a restart" {
            worker.start_again();
        }
        let () = cluster.redis.cli(&["LPUSH", &queue, &line]).await;
        if round == "pushed while it is down" {
            worker.start_again();
        }
        cluster.comes_to_rest(SOON, &["w1"], || docker.running()).await;
        assert_eq!(
            docker.containers().await,
            std::slice::from_ref(&first),
            "{round}: the same container, not another"
        );
    }
    let running: Vec<String> = cluster.redis.cli(&["SMEMBERS", &format!("cs:{}", cluster.node("w1"))]).await;
    assert_eq!(running, [line], "the very JSON that was pushed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_during_a_start_finds_its_container_again() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let mut worker = cluster.worker("w1", "docker");
    let queue = format!("pq:{}", cluster.node("w1"));
    for round in 0..6 {
        let line = format!(
            r#"{{"name":"t","uuid":"u{round}-{}","image":"{IMAGE}","replica":{round}}}"#,
            cluster.prefix
        );
        let () = cluster.redis.cli(&["LPUSH", &queue, &line]).await;
        tokio::time::sleep(Duration::from_millis(60 * round)).await;
        worker.kill();
        worker.start_again();
    }
    cluster.comes_to_rest(Duration::from_secs(40), &["w1"], || docker.running()).await;
    assert_eq!(docker.containers().await.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_removed_by_hand_is_started_again() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler, _worker) =
        (cluster.api().await, cluster.scheduler(), cluster.worker("w1", "docker"));
    let http = api.http();
    http.post("/service", &json!({"name": "web", "image": IMAGE})).await;
    http.runs(SOON, "web", 1).await;
    let first = docker.containers().await.remove(0);
    docker.remove(&first.id).await;
    eventually_within(Duration::from_secs(45), "another container runs", || async {
        let found = docker.containers().await;
        check(found.len() == 1 && found[0].running && found[0].id != first.id, || format!("{found:?}"))
    })
    .await;
    cluster.comes_to_rest(SOON, &["w1"], || docker.running()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_reported_with_the_engines_message_and_delays_no_other_pod() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker_with("w1", "docker", &[("KUBELEET_START_CONCURRENCY", "1")]);
    let http = api.http();
    let missing = "kubeleet-test/there-is-no-such-image:0";
    http.post("/service", &json!({"name": "bad", "image": missing, "replicas": 2})).await;
    http.post("/service", &json!({"name": "good", "image": IMAGE, "replicas": 2})).await;
    http.runs(Duration::from_secs(60), "good", 2).await;
    eventually_within(Duration::from_secs(60), "the pods report the reason", || async {
        let pods = http.pods("service=bad").await;
        let is_reported = pods.len() == 2 && pods.iter().all(|pod| pod["reason"] == "ImagePullBackOff");
        check(is_reported, || format!("{pods:?}\n{}", worker.log()))
    })
    .await;
    let message = http.pods("service=bad").await[0]["message"].as_str().unwrap().to_owned();
    assert!(message.len() > 20, "the engine's message: {message}");
    let (status, _) = http.send(reqwest::Method::DELETE, "/service/bad", None).await;
    assert_eq!(status.as_u16(), 202);
    eventually_within(SOON, "the service that never started is gone", || async {
        let (status, body) = http.send(reqwest::Method::GET, "/service/bad", None).await;
        check(status.as_u16() == 404, || body.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_is_reported_and_backs_off() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker_with("w1", "docker", &[("KUBELEET_RESTART_BACKOFF", "500ms")]);
    let http = api.http();
    let command = json!(["/bin/sh", "-c", "echo about to fail; exit 7"]);
    http.post("/service", &json!({"name": "crash", "image": IMAGE, "command": command})).await;
    let pod = eventually_within(3 * SOON, "the pod is in a crash loop", || async {
        let pods = http.pods("service=crash").await;
        match pods.first() {
            Some(pod) if pod["restarts"].as_u64() >= Some(2) && pod["reason"] == "CrashLoopBackOff" => {
                Ok(pod.clone())
            }
            other => Err(format!("{other:?}\n{}", worker.log())),
        }
    })
    .await;
    assert_eq!((&pod["exit_code"], &pod["phase"]), (&json!(7), &json!("running")), "{pod}");
    assert!(pod["message"].as_str().unwrap().contains('7'), "{pod}");
    assert_eq!(docker.containers().await.len(), 1, "the same container, started again");
    let once = json!({"name": "once", "image": IMAGE, "command": command, "restart": "never"});
    http.post("/service", &once).await;
    eventually_within(SOON, "a pod that must not be restarted has failed", || async {
        let pods = http.pods("service=once").await;
        check(pods.len() == 1 && pods[0]["phase"] == "failed" && pods[0]["exit_code"] == 7, || {
            format!("{pods:?}")
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_and_followed_through_the_api() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler, _worker) =
        (cluster.api().await, cluster.scheduler(), cluster.worker("w1", "docker"));
    let http = api.http();
    let script = "trap 'exit 0' TERM; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.2 & wait $!; done";
    http.post("/service", &json!({"name": "talk", "image": IMAGE, "command": ["/bin/sh", "-c", script]}))
        .await;
    http.runs(SOON, "talk", 1).await;
    let uuid = http.pods("service=talk").await[0]["uuid"].as_str().unwrap().to_owned();
    // A container runs before its program has written anything.
    eventually_within(SOON, "the first line is read", || async {
        let (status, text) =
            http.send(reqwest::Method::GET, &format!("/pod/{uuid}/log?tail=100"), None).await;
        let is_there = status.is_success() && text.as_str().unwrap().contains("line 1\n");
        if is_there { Ok(()) } else { Err(format!("{status}: {text}")) }
    })
    .await;
    let mut stream = http.stream(&format!("/pod/{uuid}/log?tail=1&follow=true")).await;
    let mut seen = String::new();
    while seen.lines().count() < 6 {
        let chunk = tokio::time::timeout(SOON, stream.chunk()).await.expect("the stream goes on").unwrap();
        seen.push_str(&String::from_utf8_lossy(&chunk.expect("the stream does not end")));
    }
    let numbers: Vec<u32> =
        seen.lines().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "none is missing: {numbers:?}");
}

/// The sandbox is made from kubeleet's own binary, so no registry is needed.
#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_a_pod_share_one_network_and_one_that_crashes_keeps_the_pod() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.small_worker("w1", "docker", 6);
    let http = api.http();
    http.nodes_ready(1).await;
    let crash_once = "if [ -e /again ]; then exec sleep 86400; fi; echo once > /again; sleep 1; exit 3";
    let pod = json!({"name": "shop", "stop_grace_period": 1, "containers": [
        {"name": "web", "image": IMAGE, "ports": [8080]},
        {"name": "cache", "image": IMAGE, "command": ["/bin/sh", "-c", crash_once], "depends_on": ["web"]},
    ]});
    http.post("/service", &pod).await;
    let restarted = eventually_within(SOON * 4, "the cache was restarted and all is well", || async {
        let pods = http.pods("service=shop").await;
        let is_well = pods[0]["reason"] == "" && pods[0]["restarts"] == 1;
        if is_well { Ok(pods[0].clone()) } else { Err(format!("{pods:?}")) }
    })
    .await;
    let names: Vec<&Value> =
        restarted["containers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["web", "cache"]);
    assert!(!restarted["address"].as_str().unwrap().is_empty(), "{restarted}");
    assert_eq!(restarted["ports"][0]["container_port"], 8080, "{restarted}");
    let networks: std::collections::BTreeSet<_> = docker
        .with_leaders()
        .await
        .into_iter()
        .map(|(_, process)| std::fs::read_link(format!("/proc/{}/ns/net", process.as_raw_nonzero())).unwrap())
        .collect();
    assert_eq!((docker.containers().await.len(), networks.len()), (3, 1), "{networks:?}");
    let uuid = restarted["uuid"].as_str().unwrap();
    let (_, described) = http.send(reqwest::Method::GET, &format!("/pod/{uuid}"), None).await;
    assert_eq!(described["runs"][0]["exit_code"], 3, "{described}");
    assert_eq!(described["runs"][0]["container"], "cache");
    http.send(reqwest::Method::DELETE, "/service/shop", None).await;
    eventually_within(SOON, "no container is left", || async {
        let left = docker.containers().await;
        check(left.is_empty(), || format!("{left:?}"))
    })
    .await;
}
