//! Invariant 1 while every process is killed repeatedly: in the end exactly the acknowledged services run.
//! `KUBELEET_CHAOS=<seconds>` sets the duration.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::invariants::violations;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Http};
use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::eventually_within;

const SERVICES: usize = 200;

fn length() -> Duration {
    let seconds = std::env::var("KUBELEET_CHAOS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastWrite {
    /// The number of replicas, or a deletion.
    Acknowledged(Option<u64>),
    /// Its response was lost: the client repeats it later.
    Unknown,
}

fn service(number: usize, replicas: u64) -> Value {
    let command = ["/bin/sleep", "86400"];
    json!({
        "name": format!("s{number}"), "image": IMAGE, "command": command, "replicas": replicas, "stop_grace_period": 0
    })
}

async fn write(http: &Http, rng: &mut StdRng, number: usize, last: Option<LastWrite>) -> LastWrite {
    let replicas = rng.random_range(0..=2);
    let (path, name) = (format!("/service/s{number}"), service(number, replicas));
    let sent = match (last, rng.random_range(0..10)) {
        (Some(LastWrite::Acknowledged(Some(_))), 0..=1) => {
            (http.try_send(Method::DELETE, &path, None).await, None)
        }
        (Some(LastWrite::Acknowledged(Some(_))), 2..=7) => {
            let scale = json!({"replicas": replicas});
            (http.try_send(Method::POST, &format!("{path}/scale"), Some(&scale)).await, Some(replicas))
        }
        _ => (http.try_send(Method::PUT, &path, Some(&name)).await, Some(replicas)),
    };
    match sent {
        (Ok(answer), wanted) if answer.status().is_success() => LastWrite::Acknowledged(wanted),
        // It is being deleted, or never existed.
        (Ok(answer), _) if matches!(answer.status().as_u16(), 404 | 409) => {
            last.unwrap_or(LastWrite::Unknown)
        }
        _ => LastWrite::Unknown,
    }
}

async fn inject_faults(mut daemons: Vec<DaemonProcess>, until: Instant) -> (Vec<DaemonProcess>, usize) {
    let mut rng = StdRng::seed_from_u64(7);
    let mut kills = 0;
    while Instant::now() < until {
        let which = rng.random_range(0..daemons.len());
        let pause = Duration::from_millis(rng.random_range(50..600));
        if rng.random_range(0..12) == 0 {
            daemons[which].freeze();
            tokio::time::sleep(ClusterTiming::Short.dead_after() + Duration::from_secs(2)).await;
            daemons[which].thaw();
        } else {
            daemons[which].kill();
            tokio::time::sleep(pause / 2).await;
            daemons[which].start_again();
            kills += 1;
        }
        tokio::time::sleep(pause).await;
    }
    (daemons, kills)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_minute_of_kills_exactly_the_acknowledged_services_run() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let docker = Docker::find(&cluster.prefix).await;
    let runtimes = if docker.is_some() { ["docker", "process", "process"] } else { ["process"; 3] };
    let apis = [cluster.api().await, cluster.api().await];
    let https: Vec<Http> = apis.iter().map(DaemonProcess::http).collect();
    let mut daemons = Vec::from(apis);
    daemons.extend(["scheduler-1", "scheduler-2"].map(|name| cluster.scheduler_named(name)));
    for (short, runtime) in ["w1", "w2", "w3"].into_iter().zip(runtimes) {
        // Two cores start only a few containers in a second.
        let settings: &[_] = if runtime == "docker" { &[("KUBELEET_MAX_PODS", "30")] } else { &[] };
        daemons.push(cluster.worker_with(short, runtime, settings));
    }
    let until = Instant::now() + length();
    let faults = tokio::spawn(inject_faults(daemons, until));

    let mut rng = StdRng::seed_from_u64(42);
    let mut writes: BTreeMap<usize, LastWrite> = BTreeMap::new();
    let (mut acknowledged, mut lost) = (0, 0);
    while Instant::now() < until {
        let number = rng.random_range(0..SERVICES);
        let http = &https[rng.random_range(0..https.len())];
        let last = write(http, &mut rng, number, writes.get(&number).copied()).await;
        match last {
            LastWrite::Acknowledged(_) => acknowledged += 1,
            LastWrite::Unknown => lost += 1,
        }
        writes.insert(number, last);
        if acknowledged % 50 == 0 {
            let wrong = violations(&cluster.keyspace().await);
            assert!(wrong.is_empty(), "during the faults: {wrong:#?}");
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await;
    }
    let (daemons, kills) = faults.await.unwrap();
    assert!(kills > 10 && acknowledged > 100, "{kills} kills, {acknowledged} acknowledged, {lost} unknown");

    settle(&https[0], &mut writes).await;
    let expected: BTreeMap<String, u64> = writes
        .iter()
        .filter_map(|(number, last)| match last {
            LastWrite::Acknowledged(Some(replicas)) => Some((format!("s{number}"), *replicas)),
            _ => None,
        })
        .collect();
    let nodes = ["w1", "w2", "w3"];
    cluster
        .comes_to_rest(Duration::from_secs(120), &nodes, || async {
            let mut running = cluster.processes.running();
            if let Some(docker) = &docker {
                running.extend(docker.running().await);
            }
            running
        })
        .await;
    let mut found = BTreeMap::new();
    let mut page = https[0].get("/service?limit=1000").await;
    for service in page["items"].take().as_array().unwrap() {
        found.insert(
            service["name"].as_str().unwrap().to_owned(),
            service["status"]["running"].as_u64().unwrap(),
        );
    }
    assert_eq!(found, expected, "{kills} kills, {acknowledged} acknowledged, {lost} unknown");
    drop(daemons);
}

async fn settle(http: &Http, writes: &mut BTreeMap<usize, LastWrite>) {
    for (number, last) in writes.iter_mut() {
        if *last != LastWrite::Unknown {
            continue;
        }
        let put = service(*number, 1);
        eventually_within(Duration::from_secs(60), "the service is stored", || async {
            match http.try_send(Method::PUT, &format!("/service/s{number}"), Some(&put)).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(answer.status().to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        *last = LastWrite::Acknowledged(Some(1));
    }
}
