//! Invariant 1 under fire: for a minute everything is killed over and over while a client posts, scales and deletes, and
//! remembers what was acknowledged. In the end exactly that runs.
//!
//! `KUBELEET_CHAOS=<seconds>` makes it longer or shorter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::invariants::violations;
use kubeleet_tests::{Cluster, Daemon, Http, Timing};
use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::{Value, json};

const SERVICES: usize = 200;

fn length() -> Duration {
    let seconds = std::env::var("KUBELEET_CHAOS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// What a service shall be, as far as the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// The last write was acknowledged: so many, or none at all.
    Surely(Option<u64>),
    /// The answer to the last write was lost: it is asked again later.
    Unknown,
}

/// Runs as a container and as a process alike, wherever it is placed: two cores start processes by the hundred, and
/// containers only a few a second.
fn service(number: usize, replicas: u64) -> Value {
    let command = ["/bin/sleep", "86400"];
    json!({"name": format!("s{number}"), "image": IMAGE, "command": command, "replicas": replicas, "stop_grace_period": 0})
}

/// One random write, and what is known after it.
async fn write(http: &Http, dice: &mut StdRng, number: usize, wish: Option<Wish>) -> Wish {
    let replicas = dice.random_range(0..=2);
    let (path, name) = (format!("/service/s{number}"), service(number, replicas));
    let sent = match (wish, dice.random_range(0..10)) {
        (Some(Wish::Surely(Some(_))), 0..=1) => (http.try_send(Method::DELETE, &path, None).await, None),
        (Some(Wish::Surely(Some(_))), 2..=7) => {
            let scale = json!({"replicas": replicas});
            (http.try_send(Method::POST, &format!("{path}/scale"), Some(&scale)).await, Some(replicas))
        }
        _ => (http.try_send(Method::PUT, &path, Some(&name)).await, Some(replicas)),
    };
    match sent {
        (Ok(answer), wanted) if answer.status().is_success() => Wish::Surely(wanted),
        // It is being deleted, or was never there: what was known before still holds.
        (Ok(answer), _) if matches!(answer.status().as_u16(), 404 | 409) => wish.unwrap_or(Wish::Unknown),
        _ => Wish::Unknown,
    }
}

/// Kills one after the other, starts it again, and now and then freezes one for longer than a node's death takes.
async fn fire(mut daemons: Vec<Daemon>, until: Instant) -> (Vec<Daemon>, usize) {
    let mut dice = StdRng::seed_from_u64(7);
    let mut kills = 0;
    while Instant::now() < until {
        let which = dice.random_range(0..daemons.len());
        let pause = Duration::from_millis(dice.random_range(50..600));
        if dice.random_range(0..12) == 0 {
            daemons[which].freeze();
            tokio::time::sleep(Timing::Short.dead_after() + Duration::from_secs(2)).await;
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
async fn after_a_minute_of_kills_exactly_what_was_acknowledged_runs() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let docker = Docker::find(&cluster.prefix).await;
    let runtimes = if docker.is_some() { ["docker", "process", "process"] } else { ["process"; 3] };
    let apis = [cluster.api().await, cluster.api().await];
    let https: Vec<Http> = apis.iter().map(Daemon::http).collect();
    let mut daemons = Vec::from(apis);
    daemons.extend(["scheduler-1", "scheduler-2"].map(|name| cluster.scheduler_named(name)));
    for (short, runtime) in ["w1", "w2", "w3"].into_iter().zip(runtimes) {
        // The engine's node takes little: two cores start a few containers a second.
        let room: &[_] = if runtime == "docker" { &[("KUBELEET_MAX_PODS", "30")] } else { &[] };
        daemons.push(cluster.worker_with(short, runtime, room));
    }
    let until = Instant::now() + length();
    let firing = tokio::spawn(fire(daemons, until));

    let mut dice = StdRng::seed_from_u64(42);
    let mut wishes: BTreeMap<usize, Wish> = BTreeMap::new();
    let (mut acknowledged, mut lost) = (0, 0);
    while Instant::now() < until {
        let number = dice.random_range(0..SERVICES);
        let http = &https[dice.random_range(0..https.len())];
        let wish = write(http, &mut dice, number, wishes.get(&number).copied()).await;
        match wish {
            Wish::Surely(_) => acknowledged += 1,
            Wish::Unknown => lost += 1,
        }
        wishes.insert(number, wish);
        if acknowledged % 50 == 0 {
            let wrong = violations(&cluster.keyspace().await);
            assert!(wrong.is_empty(), "in the middle of it: {wrong:#?}");
        }
        tokio::time::sleep(Duration::from_millis(dice.random_range(0..30))).await;
    }
    let (daemons, kills) = firing.await.unwrap();
    assert!(kills > 10 && acknowledged > 100, "{kills} kills, {acknowledged} acknowledged, {lost} unknown");

    settle(&https[0], &mut wishes).await;
    let expected: BTreeMap<String, u64> = wishes
        .iter()
        .filter_map(|(number, wish)| match wish {
            Wish::Surely(Some(replicas)) => Some((format!("s{number}"), *replicas)),
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

/// Asks again where the answer was lost, until each wish is known.
async fn settle(http: &Http, wishes: &mut BTreeMap<usize, Wish>) {
    for (number, wish) in wishes.iter_mut() {
        if *wish != Wish::Unknown {
            continue;
        }
        let put = service(*number, 1);
        kubeleet_tests::eventually(Duration::from_secs(60), "the wish is stored", || async {
            match http.try_send(Method::PUT, &format!("/service/s{number}"), Some(&put)).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(answer.status().to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        *wish = Wish::Surely(Some(1));
    }
}
