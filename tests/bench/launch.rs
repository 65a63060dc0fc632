//! Launching, stopping and removing containers on the real engine: kubeleet, the engine asked directly with the best
//! parallelism, and the same engine as a Swarm. The engine is by far the slowest part of all three, so a ratio near one
//! says that kubeleet does not stand in its way.

use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use reqwest::Method;
use serde_json::{Value, json};

use crate::args::Args;
use crate::engine::Engine;
use crate::observe;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;

const PODS: u32 = 50;
const RUNS: usize = 2;
const PARALLELISMS: &[usize] = &[4, 8, 16];

/// Launch, and stop with removal, in seconds.
#[derive(Default)]
struct Times {
    launch: Series,
    remove: Series,
}

impl Times {
    fn push(&mut self, (launch, remove): (Duration, Duration)) {
        self.launch.push(launch.as_secs_f64());
        self.remove.push(remove.as_secs_f64());
    }

    fn row(&self, what: &str, best: &Self) -> Vec<String> {
        let share = |of: &Series, best: &Series| format!("{:.0} %", 100.0 * best.median() / of.median());
        vec![
            what.to_owned(),
            self.launch.show(1),
            share(&self.launch, &best.launch),
            self.remove.show(1),
            share(&self.remove, &best.remove),
        ]
    }

    fn json(&self) -> Value {
        json!({ "launch_seconds": self.launch.json(), "remove_seconds": self.remove.json() })
    }
}

pub async fn run(args: &Args) {
    let prefix = format!("kt-{}-bench", std::process::id());
    let Some(docker) = Docker::find(&prefix).await else { return };
    let engine = Engine::connect().await;
    let pods = args.pods.unwrap_or(PODS);
    let best = best_parallelism(&engine, &prefix, pods as usize).await;
    let (mut ours, mut direct, mut swarm) = (Times::default(), Times::default(), Times::default());
    let mut why_no_swarm = None;
    // In turns, so that what else happens on this machine meets all alike.
    for _ in 0..args.runs.unwrap_or(RUNS) {
        direct.push(directly(&engine, &prefix, pods as usize, best).await);
        ours.push(kubeleet(&engine, &prefix, pods).await);
        match by_swarm(&engine, pods as usize).await {
            Ok(times) => swarm.push(times),
            Err(error) => why_no_swarm = Some(error),
        }
    }
    drop(docker);
    let what = engine.describe().await;
    let title = format!(
        "{pods} containers on one engine ({what}), seconds, and the engine's own best as a share of them"
    );
    let mut table =
        Table::new(&title, &["by", "launch", "engine's best", "stop and remove", "engine's best"]);
    table.row(direct.row(&format!("the engine, {best} at a time"), &direct));
    table.row(ours.row("kubeleet", &direct));
    if swarm.launch.len() > 0 {
        table.row(swarm.row("Swarm", &direct));
    }
    table.print();
    if let Some(why) = &why_no_swarm {
        println!("no Swarm here: {why}");
    }
    let swarm = if swarm.launch.len() > 0 { swarm.json() } else { json!({ "missing": why_no_swarm }) };
    save(
        "launch",
        &json!({
            "pods": pods, "engine": what, "best_parallelism": best,
            "direct": direct.json(), "kubeleet": ours.json(), "swarm": swarm,
        }),
    );
}

async fn best_parallelism(engine: &Engine, prefix: &str, pods: usize) -> usize {
    let mut best = (f64::INFINITY, 1);
    for &at_a_time in PARALLELISMS {
        let (launch, remove) = directly(engine, prefix, pods, at_a_time).await;
        println!("  the engine, {at_a_time} at a time: launched in {launch:.1?}, removed in {remove:.1?}");
        if launch.as_secs_f64() < best.0 {
            best = (launch.as_secs_f64(), at_a_time);
        }
    }
    best.1
}

async fn directly(engine: &Engine, prefix: &str, pods: usize, at_a_time: usize) -> (Duration, Duration) {
    let begun = Instant::now();
    let ids = engine.launch(&format!("{prefix}-direct"), pods, at_a_time).await;
    let launched = begun.elapsed();
    let begun = Instant::now();
    engine.remove(ids, at_a_time).await;
    (launched, begun.elapsed())
}

async fn kubeleet(engine: &Engine, prefix: &str, pods: u32) -> (Duration, Duration) {
    let mut rig = Rig::new(Persistence::Everysec, &[]).await;
    let node = format!("{prefix}-w");
    rig.start("worker", "worker", &[("KUBELEET_NODE", &node), ("KUBELEET_RUNTIME", "docker")]);
    rig.nodes = vec![node.clone()];
    rig.scheduler();
    let http = rig.api().await;
    rig.until_idle(Duration::from_secs(20)).await;
    let mut connection = rig.connection().await;
    let begun = Instant::now();
    let body = json!({ "name": "bench", "image": IMAGE, "replicas": pods });
    let (status, answer) = http.send(Method::POST, "/service", Some(&body)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    let running = async || observe::running(&mut connection, &rig.nodes).await;
    let launched = observe::until("running", u64::from(pods), begun, running).await;
    let begun = Instant::now();
    let (status, answer) = http.send(Method::DELETE, "/service/bench", None).await;
    assert!(status.is_success(), "{answer}");
    engine.until(&format!("kubeleet.node={node}"), false, 0).await;
    (launched, begun.elapsed())
}

async fn by_swarm(engine: &Engine, pods: usize) -> Result<(Duration, Duration), String> {
    let swarm = engine.swarm().await?;
    let begun = Instant::now();
    swarm.create("kubeleet-bench", pods).await;
    let launched = begun.elapsed();
    let begun = Instant::now();
    swarm.delete("kubeleet-bench").await;
    Ok((launched, begun.elapsed()))
}
