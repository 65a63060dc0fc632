//! Cuts off a host with a real engine; Docker Swarm for comparison.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::args::Args;
use crate::fleet::{Fleet, KUBELEET_LABEL, service};
use crate::observe;
use crate::report::{Table, save};
use crate::stats::Series;
use crate::swarm::{Swarm, label};

const PODS: usize = 60;
const HOSTS: u8 = 3;
/// The Swarm's manager is the first host.
const VICTIM: usize = 2;
const RUNS: usize = 2;
const NAME: &str = "bench";
const DEAD_AFTER: Duration = Duration::from_secs(20);
const SWARM_SETTLE_TIME: Duration = Duration::from_secs(5);

struct CutRun {
    pods: usize,
    downtime: Duration,
    /// Seconds since its last heartbeat, less the silence after which a node is declared dead. None if that
    /// is not a setting.
    after_dead_after: Option<f64>,
    still_running: usize,
}

#[derive(Clone, Copy)]
enum Orchestrator {
    /// With this `on_disconnect`.
    Kubeleet(&'static str),
    Swarm,
}

impl Orchestrator {
    fn name(self) -> String {
        match self {
            Orchestrator::Kubeleet(on_disconnect) => format!("kubeleet, on_disconnect: {on_disconnect}"),
            Orchestrator::Swarm => "Swarm".to_owned(),
        }
    }

    async fn cut(self, fleet: &Fleet) -> Result<CutRun, String> {
        match self {
            Orchestrator::Kubeleet(on_disconnect) => Ok(kubeleet(fleet, on_disconnect).await),
            Orchestrator::Swarm => swarm(fleet).await,
        }
    }
}

pub async fn run(args: &Args) {
    let Some(fleet) = Fleet::start(HOSTS).await else { return };
    let title = format!("One of {HOSTS} hosts with {PODS} containers is cut off: seconds");
    let header =
        ["by", "pods there", "cut → all run elsewhere", "after dead_after", "still running there then"];
    let mut table = Table::new(&title, &header);
    let mut results = Vec::new();
    for orchestrator in [Orchestrator::Kubeleet("stop"), Orchestrator::Kubeleet("keep"), Orchestrator::Swarm]
    {
        let mut runs = Vec::new();
        for _ in 0..args.runs(RUNS) {
            match orchestrator.cut(&fleet).await {
                Ok(run) => runs.push(run),
                Err(why) => println!("{} cannot run here: {why}", orchestrator.name()),
            }
        }
        if !runs.is_empty() {
            results.push(add_row(orchestrator, &runs, &mut table));
        }
    }
    table.print();
    save("cut_host", &json!(results));
}

fn add_row(orchestrator: Orchestrator, runs: &[CutRun], table: &mut Table) -> Value {
    let series = |of: fn(&CutRun) -> Option<f64>| -> Series { runs.iter().filter_map(of).collect() };
    let pods = series(|run| Some(run.pods as f64));
    let downtime = series(|run| Some(run.downtime.as_secs_f64()));
    let after = series(|run| run.after_dead_after);
    let still_running = series(|run| Some(run.still_running as f64));
    let shown_after = if after.len() == 0 { "–".to_owned() } else { after.show(1) };
    table.row(vec![orchestrator.name(), pods.show(0), downtime.show(1), shown_after, still_running.show(0)]);
    json!({
        "by": orchestrator.name(), "hosts": HOSTS, "containers": PODS, "on_the_host": pods.json(),
        "cut_to_running_elsewhere": downtime.json(), "still_running_there": still_running.json(),
        "after_dead_after": (after.len() > 0).then(|| after.json()),
    })
}

async fn kubeleet(fleet: &Fleet, on_disconnect: &str) -> CutRun {
    let cluster = fleet.cluster().await;
    let mut service = service(NAME, PODS);
    service["on_disconnect"] = json!(on_disconnect);
    cluster.launch(&service).await;
    let rig = &cluster.rig;
    rig.wait_until_idle(Duration::from_secs(20)).await;
    let victim = fleet.hosts.host(VICTIM);
    let mut connection = rig.connection().await;
    let pods = observe::running(&mut connection, &rig.nodes[VICTIM..]).await;

    victim.cut();
    let cut_at = Instant::now();
    let silent_already = observe::silence(&rig.redis, victim.name()).await;
    tokio::time::sleep(DEAD_AFTER.saturating_sub(silent_already + Duration::from_millis(100))).await;
    let elsewhere = async || observe::running(&mut connection, &rig.nodes[..VICTIM]).await;
    let downtime = observe::until("running elsewhere", PODS as u64, cut_at, elsewhere).await;
    let still_running = fleet.engines[VICTIM].count(KUBELEET_LABEL, true).await;
    victim.join();
    cluster.remove(fleet, NAME).await;
    let after = (downtime + silent_already).as_secs_f64() - DEAD_AFTER.as_secs_f64();
    CutRun { pods: pods as usize, downtime, after_dead_after: Some(after), still_running }
}

async fn swarm(fleet: &Fleet) -> Result<CutRun, String> {
    let swarm = Swarm::form(fleet).await?;
    swarm.create(NAME, PODS).await;
    tokio::time::sleep(SWARM_SETTLE_TIME).await;
    let pods = fleet.engines[VICTIM].count(&label(NAME), true).await;

    fleet.hosts.host(VICTIM).cut();
    let cut_at = Instant::now();
    Fleet::wait_for_containers(&fleet.engines[..VICTIM], &label(NAME), true, PODS).await;
    let downtime = cut_at.elapsed();
    let still_running = fleet.engines[VICTIM].count(&label(NAME), true).await;
    fleet.hosts.host(VICTIM).join();
    swarm.wait_until_ready().await;
    swarm.delete(NAME).await;
    swarm.leave().await;
    Ok(CutRun { pods, downtime, after_dead_after: None, still_running })
}
