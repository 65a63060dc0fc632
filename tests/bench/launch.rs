//! Launching, stopping and removing containers on real engines, one and three: kubeleet, the engines asked directly with the
//! best parallelism, the same engines as a Swarm, and the first kubeleet's worker, which starts one after the other. The
//! engines are by far the slowest part of all, so a share near one says that kubeleet does not stand in their way.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::args::Args;
use crate::first_loop;
use crate::fleet::{Fleet, service};
use crate::report::{Table, save};
use crate::stats::Series;
use crate::swarm::Swarm;

const ENGINES: &[u8] = &[1, 3];
const SIZES: &[usize] = &[50, 100];
const RUNS: usize = 3;
/// Calls at a time on each engine.
const PARALLELISMS: &[usize] = &[2, 4, 8, 16, 32];
const NAME: &str = "bench";
/// What an operator sets who has several workers on one machine, as the hosts here are: they do not know of each other.
const AT_A_TIME: &str = "KUBELEET_START_CONCURRENCY";
const HEAD: &[&str] =
    &["engines", "containers", "by", "launch", "engines' best", "stop and remove", "engines' best"];

/// Launch, and stop with removal.
pub type Took = (Duration, Duration);

/// The same of several runs, in seconds.
#[derive(Default)]
struct Times {
    launch: Series,
    remove: Series,
}

impl Times {
    fn push(&mut self, (launch, remove): Took) {
        self.launch.push(launch.as_secs_f64());
        self.remove.push(remove.as_secs_f64());
    }

    fn row(&self, begin: [String; 3], best: &Self) -> Vec<String> {
        let share = |of: &Series, best: &Series| format!("{:.0} %", 100.0 * best.median() / of.median());
        let figures = [
            self.launch.show(1),
            share(&self.launch, &best.launch),
            self.remove.show(1),
            share(&self.remove, &best.remove),
        ];
        begin.into_iter().chain(figures).collect()
    }

    fn json(&self) -> Value {
        json!({ "launch_seconds": self.launch.json(), "remove_seconds": self.remove.json() })
    }
}

/// How many calls at a time on each engine are fastest.
#[derive(Clone, Copy)]
struct Best {
    launch: usize,
    remove: usize,
}

pub async fn run(args: &Args) {
    let title = "Containers on real engines, seconds, and the engines' own best as a share of them";
    let mut table = Table::new(title, HEAD);
    let mut results = Vec::new();
    for &engines in ENGINES {
        let Some(fleet) = Fleet::start(engines).await else { return };
        println!("{engines} x {}", fleet.engines[0].describe().await);
        let sizes = args.pods.map_or(SIZES.to_vec(), |pods| vec![pods as usize]);
        let best = best(&fleet, sizes[0]).await;
        for pods in sizes {
            results.push(measure(&fleet, pods, best, args.runs.unwrap_or(RUNS), &mut table).await);
        }
    }
    table.print();
    save("launch", &json!(results));
}

async fn best(fleet: &Fleet, pods: usize) -> Best {
    let mut tried = Vec::new();
    for &at_a_time in PARALLELISMS {
        let (launch, remove) = directly(fleet, pods, Best { launch: at_a_time, remove: at_a_time }).await;
        println!(
            "  {pods} directly, {at_a_time} at a time each: launched in {launch:.1?}, removed in {remove:.1?}"
        );
        tried.push((at_a_time, launch, remove));
    }
    Best {
        launch: tried.iter().min_by_key(|(_, launch, _)| *launch).unwrap().0,
        remove: tried.iter().min_by_key(|(_, _, remove)| *remove).unwrap().0,
    }
}

/// In turns, so that what else happens on this machine meets all alike.
async fn measure(fleet: &Fleet, pods: usize, best: Best, runs: usize, table: &mut Table) -> Value {
    let (mut direct, mut ours, mut swarm) = (Times::default(), Times::default(), Times::default());
    let (mut first, mut shared, mut own_cpu) = (Times::default(), Times::default(), Series::default());
    let engines = fleet.engines.len();
    let sharing = format!("kubeleet, {} at a time each", best.launch);
    let mut why_no_swarm = None;
    let say = |by: &str, (launch, remove): Took| {
        println!("  {pods} by {by}: launched in {launch:.1?}, removed in {remove:.1?}");
        (launch, remove)
    };
    for _ in 0..runs {
        direct.push(say("the engines", directly(fleet, pods, best).await));
        let (took, own) = kubeleet(fleet, pods, &[]).await;
        ours.push(say("kubeleet", took));
        println!("  of which kubeleet and Redis themselves took {own:.2} s of processor time");
        own_cpu.push(own);
        if engines > 1 {
            shared
                .push(say(&sharing, kubeleet(fleet, pods, &[(AT_A_TIME, &best.launch.to_string())]).await.0));
        }
        match by_swarm(fleet, pods).await {
            Ok(times) => swarm.push(say("Swarm", times)),
            Err(error) => why_no_swarm = Some(error),
        }
        first.push(say("the first kubeleet's loop", first_loop::run(fleet, pods).await));
    }
    let begin = |by: String| [engines.to_string(), pods.to_string(), by];
    let directly = format!("the engines, {} and {} at a time each", best.launch, best.remove);
    table.row(direct.row(begin(directly), &direct));
    table.row(ours.row(begin("kubeleet".to_owned()), &direct));
    if engines > 1 {
        table.row(shared.row(begin(sharing), &direct));
    }
    table.row(first.row(begin("the first kubeleet's loop".to_owned()), &direct));
    let swarm = match &why_no_swarm {
        None => {
            table.row(swarm.row(begin("Swarm".to_owned()), &direct));
            swarm.json()
        }
        Some(why) => {
            println!("no Swarm here: {why}");
            json!({ "missing": why })
        }
    };
    json!({
        "engines": engines, "engine": fleet.engines[0].describe().await, "containers": pods,
        "best_parallelism_each": { "launch": best.launch, "remove": best.remove },
        "direct": direct.json(), "kubeleet": ours.json(), "swarm": swarm,
        "kubeleet_with_the_best_parallelism": (engines > 1).then(|| shared.json()),
        "kubeleets_own_processor_seconds": own_cpu.json(),
        "first_loop": first.json(),
    })
}

async fn directly(fleet: &Fleet, pods: usize, at_a_time: Best) -> Took {
    let engines = fleet.engines.len();
    // As evenly as it goes.
    let share = |index: usize| pods / engines + usize::from(index < pods % engines);
    let begun = Instant::now();
    let launches = fleet.engines.iter().enumerate();
    let launches = launches.map(|(index, engine)| engine.launch(share(index), at_a_time.launch));
    let ids = join_all(launches).await;
    let launched = begun.elapsed();
    let begun = Instant::now();
    join_all(fleet.engines.iter().zip(ids).map(|(engine, ids)| engine.remove(ids, at_a_time.remove))).await;
    (launched, begun.elapsed())
}

/// Also gives how many seconds of processor time the launch took of everything but the engines: Redis and all daemons.
async fn kubeleet(fleet: &Fleet, pods: usize, settings: &[(&'static str, &str)]) -> (Took, f64) {
    let cluster = fleet.cluster_with(settings).await;
    let before = cluster.rig.cpu();
    let launched = cluster.launch(&service(NAME, pods)).await;
    let own = cluster.rig.cpu().since(&before).total();
    ((launched, cluster.remove(fleet, NAME).await), own)
}

async fn by_swarm(fleet: &Fleet, pods: usize) -> Result<Took, String> {
    let swarm = Swarm::of(fleet).await?;
    let begun = Instant::now();
    swarm.create(NAME, pods).await;
    let launched = begun.elapsed();
    let begun = Instant::now();
    swarm.delete(NAME).await;
    let removed = begun.elapsed();
    swarm.leave().await;
    Ok((launched, removed))
}
