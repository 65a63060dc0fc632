//! Downtime of a dead node's pods, less the silence after which a node is declared dead.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::args::Args;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;
use crate::{cut_host, observe};

struct Detection {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    dead_after: Duration,
    runs: usize,
}

const DETECTIONS: &[Detection] = &[
    Detection {
        name: "5 s, 15 s, 20 s (default)",
        settings: &[],
        dead_after: Duration::from_secs(20),
        runs: 2,
    },
    Detection {
        name: "1 s, 4 s, 6 s",
        settings: &[
            ("KUBELEET_HEARTBEAT", "1s"),
            ("KUBELEET_FENCE_AFTER", "4s"),
            ("KUBELEET_DEAD_AFTER", "6s"),
        ],
        dead_after: Duration::from_secs(6),
        runs: 5,
    },
];

const OTHERS: u32 = 10;

/// In seconds after `dead_after`.
struct DeathRun {
    declared: f64,
    running: f64,
}

pub async fn run(args: &Args) {
    let pods = args.pods.unwrap_or(args.size(1_000, 20));
    let title = format!("Dead node with {pods} pods, {OTHERS} nodes take over: seconds after dead_after");
    let mut table =
        Table::new(&title, &["heartbeat, fence, dead", "AOF", "declared dead", "all run elsewhere"]);
    let mut results = Vec::new();
    for persistence in args.persistences(&[Persistence::Everysec]) {
        // The last one is the fastest.
        let skipped = args.size(0, DETECTIONS.len() - 1);
        for detection in &DETECTIONS[skipped..] {
            let (mut declared, mut running) = (Series::default(), Series::default());
            for _ in 0..args.runs(detection.runs) {
                let run = measure(persistence, detection, pods, args.schedulers).await;
                println!(
                    "  {}: declared {:+.2} s, all run {:+.2} s",
                    detection.name, run.declared, run.running
                );
                declared.push(run.declared);
                running.push(run.running);
            }
            let persistence_name = persistence.name();
            table.row(vec![
                detection.name.to_owned(),
                persistence_name.to_owned(),
                declared.show(2),
                running.show(2),
            ]);
            results.push(result(persistence, detection, pods, &declared, &running));
        }
    }
    table.print();
    save("dead_node", &json!(results));
    // Takes minutes with the default settings, which Docker Swarm is compared with.
    if !args.smoke {
        cut_host::run(args).await;
    }
}

fn result(
    persistence: Persistence,
    detection: &Detection,
    pods: u32,
    declared: &Series,
    running: &Series,
) -> Value {
    json!({
        "pods": pods, "persistence": persistence.name(),
        "dead_after_seconds": detection.dead_after.as_secs_f64(),
        "declared_after_that": declared.json(), "running_after_that": running.json(),
    })
}

async fn measure(persistence: Persistence, detection: &Detection, pods: u32, schedulers: u32) -> DeathRun {
    let mut rig = Rig::new(persistence, detection.settings).await;
    let victim = rig.workers("victim", 1).await;
    for _ in 0..schedulers {
        rig.scheduler();
    }
    let http = rig.api().await;
    let mut connection = rig.connection().await;
    let body = json!({ "name": "bench", "image": "nginx:1.27", "replicas": pods });
    let (status, answer) = http.send(Method::POST, "/service", Some(&body)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    let running = async |connection: &mut _, nodes: &[String]| observe::running(connection, nodes).await;
    let nodes = rig.nodes.clone();
    observe::until("running", u64::from(pods), Instant::now(), async || {
        running(&mut connection, &nodes).await
    })
    .await;
    rig.workers("w", OTHERS).await;
    rig.wait_until_idle(Duration::from_secs(30)).await;

    rig.daemon(victim).freeze();
    let silent_already = observe::silence(&rig.redis, "victim").await;
    let begin = Instant::now();
    tokio::time::sleep(detection.dead_after.saturating_sub(silent_already + Duration::from_millis(100)))
        .await;
    let declared = until_dead(&rig).await.duration_since(begin).as_secs_f64();
    let others = &rig.nodes[1..];
    let running = observe::until("running", u64::from(pods), begin, async || {
        observe::running(&mut connection, others).await
    });
    let running = running.await.as_secs_f64();
    let after = |moment: f64| moment + silent_already.as_secs_f64() - detection.dead_after.as_secs_f64();
    DeathRun { declared: after(declared), running: after(running) }
}

async fn until_dead(rig: &Rig) -> Instant {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut connection = rig.connection().await;
    loop {
        let state: String =
            redis::cmd("HGET").arg(&["node:victim", "state"]).query_async(&mut connection).await.unwrap();
        if state == "dead" {
            return Instant::now();
        }
        assert!(Instant::now() < deadline, "no scheduler declared the node dead");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
