//! A host with a real engine that is cut off: how long its pods are away, and whether they run on there meanwhile. Swarm's
//! beside it, on the same engines.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::args::Args;
use crate::fleet::{Fleet, OURS, service};
use crate::observe;
use crate::report::{Table, save};
use crate::stats::Series;
use crate::swarm::{Swarm, label};

const PODS: usize = 60;
const HOSTS: u8 = 3;
/// The last one: the Swarm's manager is on the first.
const VICTIM: usize = 2;
const RUNS: usize = 2;
const NAME: &str = "bench";
/// What people get who set nothing.
const DEAD_AFTER: Duration = Duration::from_secs(20);
/// For a Swarm to come to rest.
const REST: Duration = Duration::from_secs(5);

/// One cut.
struct Run {
    /// Pods on that host.
    pods: usize,
    /// From the cut until all run elsewhere.
    away: Duration,
    /// From its last heartbeat until then, less the time a node may be silent, in seconds; where that is a setting.
    after: Option<f64>,
    /// How many still run on that host then.
    twins: usize,
}

/// Who moves the pods.
#[derive(Clone, Copy)]
enum By {
    /// kubeleet, with this `on_disconnect`.
    Kubeleet(&'static str),
    Swarm,
}

impl By {
    fn word(self) -> String {
        match self {
            By::Kubeleet(on_disconnect) => format!("kubeleet, on_disconnect: {on_disconnect}"),
            By::Swarm => "Swarm".to_owned(),
        }
    }

    async fn cut(self, fleet: &Fleet) -> Result<Run, String> {
        match self {
            By::Kubeleet(on_disconnect) => Ok(kubeleet(fleet, on_disconnect).await),
            By::Swarm => swarm(fleet).await,
        }
    }
}

pub async fn run(args: &Args) {
    let Some(fleet) = Fleet::start(HOSTS).await else { return };
    let title = format!("One of {HOSTS} hosts with {PODS} containers is cut off: seconds");
    let head =
        ["by", "pods there", "cut → all run elsewhere", "after dead_after", "still running there then"];
    let mut table = Table::new(&title, &head);
    let mut results = Vec::new();
    for by in [By::Kubeleet("stop"), By::Kubeleet("keep"), By::Swarm] {
        let mut runs = Vec::new();
        for _ in 0..args.runs.unwrap_or(RUNS) {
            match by.cut(&fleet).await {
                Ok(run) => runs.push(run),
                Err(why) => println!("no {} here: {why}", by.word()),
            }
        }
        if !runs.is_empty() {
            results.push(tell(by, &runs, &mut table));
        }
    }
    table.print();
    save("cut_host", &json!(results));
}

fn tell(by: By, runs: &[Run], table: &mut Table) -> Value {
    let series = |of: &dyn Fn(&Run) -> Option<f64>| {
        let mut series = Series::default();
        runs.iter().filter_map(of).for_each(|value| series.push(value));
        series
    };
    let pods = series(&|run| Some(run.pods as f64));
    let away = series(&|run| Some(run.away.as_secs_f64()));
    let after = series(&|run| run.after);
    let twins = series(&|run| Some(run.twins as f64));
    let shown_after = if after.len() == 0 { "–".to_owned() } else { after.show(1) };
    table.row(vec![by.word(), pods.show(0), away.show(1), shown_after, twins.show(0)]);
    json!({
        "by": by.word(), "hosts": HOSTS, "containers": PODS, "on_the_host": pods.json(),
        "cut_to_running_elsewhere": away.json(), "twins": twins.json(),
        "after_dead_after": (after.len() > 0).then(|| after.json()),
    })
}

async fn kubeleet(fleet: &Fleet, on_disconnect: &str) -> Run {
    let cluster = fleet.cluster().await;
    let mut service = service(NAME, PODS);
    service["on_disconnect"] = json!(on_disconnect);
    cluster.launch(&service).await;
    let rig = &cluster.rig;
    rig.until_idle(Duration::from_secs(20)).await;
    let victim = fleet.hosts.host(VICTIM);
    let mut connection = rig.connection().await;
    let pods = observe::running(&mut connection, &rig.nodes[VICTIM..]).await;

    victim.cut();
    let cut = Instant::now();
    let silent_already = observe::silence(&rig.redis, victim.name()).await;
    // Nothing is asked while nothing can happen.
    tokio::time::sleep(DEAD_AFTER.saturating_sub(silent_already + Duration::from_millis(100))).await;
    let elsewhere = async || observe::running(&mut connection, &rig.nodes[..VICTIM]).await;
    let away = observe::until("running elsewhere", PODS as u64, cut, elsewhere).await;
    let twins = fleet.engines[VICTIM].count(OURS, true).await;
    victim.join();
    cluster.remove(fleet, NAME).await;
    let after = (away + silent_already).as_secs_f64() - DEAD_AFTER.as_secs_f64();
    Run { pods: pods as usize, away, after: Some(after), twins }
}

async fn swarm(fleet: &Fleet) -> Result<Run, String> {
    let swarm = Swarm::of(fleet).await?;
    swarm.create(NAME, PODS).await;
    tokio::time::sleep(REST).await;
    let pods = fleet.engines[VICTIM].count(&label(NAME), true).await;

    fleet.hosts.host(VICTIM).cut();
    let cut = Instant::now();
    Fleet::until(&fleet.engines[..VICTIM], &label(NAME), true, PODS).await;
    let away = cut.elapsed();
    let twins = fleet.engines[VICTIM].count(&label(NAME), true).await;
    fleet.hosts.host(VICTIM).join();
    swarm.all_ready().await;
    swarm.delete(NAME).await;
    swarm.leave().await;
    Ok(Run { pods, away, after: None, twins })
}
