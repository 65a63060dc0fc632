//! Launches and removes containers by kubeleet, by direct calls, by Docker Swarm, and by the first kubeleet's
//! worker. A share near one means that kubeleet adds little.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::args::Args;
use crate::fleet::{Fleet, service};
use crate::report::{Table, save};
use crate::serial_worker;
use crate::stats::Series;
use crate::swarm::Swarm;

const ENGINES: &[u8] = &[1, 3];
const SIZES: &[usize] = &[50, 100];
const RUNS: usize = 3;
const CONCURRENCIES: &[usize] = &[2, 4, 8, 16, 32];
const NAME: &str = "bench";
const SERIAL_WORKER: &str = "the first kubeleet's loop";
/// Operators set it where several workers share one machine.
const START_CONCURRENCY: &str = "KUBELEET_START_CONCURRENCY";
const HEADER: &[&str] =
    &["engines", "containers", "by", "launch", "engines' best", "stop and remove", "engines' best"];

pub type Durations = (Duration, Duration);

/// In seconds.
#[derive(Default)]
struct LaunchTimes {
    launch: Series,
    remove: Series,
}

impl LaunchTimes {
    fn push(&mut self, (launch, remove): Durations) {
        self.launch.push(launch.as_secs_f64());
        self.remove.push(remove.as_secs_f64());
    }

    fn row(&self, first_cells: [String; 3], best: &Self) -> Vec<String> {
        let share = |of: &Series, best: &Series| format!("{:.0} %", 100.0 * best.median() / of.median());
        let figures = [
            self.launch.show(1),
            share(&self.launch, &best.launch),
            self.remove.show(1),
            share(&self.remove, &best.remove),
        ];
        first_cells.into_iter().chain(figures).collect()
    }

    fn json(&self) -> Value {
        json!({ "launch_seconds": self.launch.json(), "remove_seconds": self.remove.json() })
    }
}

#[derive(Clone, Copy)]
struct BestConcurrency {
    launch: usize,
    remove: usize,
}

pub async fn run(args: &Args) {
    let title = "Containers on real engines, seconds, and the engines' own best as a share of them";
    let mut table = Table::new(title, HEADER);
    let mut results = Vec::new();
    for &engines in args.size(ENGINES, &[1]) {
        let Some(fleet) = Fleet::start(engines).await else { return };
        println!("{engines} x {}", fleet.engines[0].describe().await);
        let sizes = args.pods.map_or(args.size(SIZES, &[2]).to_vec(), |pods| vec![pods as usize]);
        let best = find_best(args, &fleet, sizes[0]).await;
        for pods in sizes {
            results.push(measure(&fleet, pods, best, args.runs(RUNS), &mut table).await);
        }
    }
    table.print();
    save("launch", &json!(results));
}

async fn find_best(args: &Args, fleet: &Fleet, pods: usize) -> BestConcurrency {
    let mut tried = Vec::new();
    for &concurrency in args.size(CONCURRENCIES, &[2]) {
        let both = BestConcurrency { launch: concurrency, remove: concurrency };
        let (launch, remove) = directly(fleet, pods, both).await;
        println!(
            "  {pods} directly, {concurrency} at a time each: launched in {launch:.1?}, \
             removed in {remove:.1?}"
        );
        tried.push((concurrency, launch, remove));
    }
    BestConcurrency {
        launch: tried.iter().min_by_key(|(_, launch, _)| *launch).unwrap().0,
        remove: tried.iter().min_by_key(|(_, _, remove)| *remove).unwrap().0,
    }
}

/// In turns, so that other load affects all alike.
async fn measure(fleet: &Fleet, pods: usize, best: BestConcurrency, runs: usize, table: &mut Table) -> Value {
    let [mut direct, mut ours, mut limited, mut serial, mut swarm]: [LaunchTimes; 5] = Default::default();
    let mut own_cpu = Series::default();
    let engines = fleet.engines.len();
    let limited_name = format!("kubeleet, {} at a time each", best.launch);
    let mut swarm_error = None;
    let print = |by: &str, (launch, remove): Durations| {
        println!("  {pods} by {by}: launched in {launch:.1?}, removed in {remove:.1?}");
        (launch, remove)
    };
    for _ in 0..runs {
        direct.push(print("the engines", directly(fleet, pods, best).await));
        let (durations, own) = kubeleet(fleet, pods, &[]).await;
        ours.push(print("kubeleet", durations));
        println!("  of which kubeleet and Redis used {own:.2} s of processor time");
        own_cpu.push(own);
        if engines > 1 {
            let limit = [(START_CONCURRENCY, best.launch.to_string())];
            let settings = limit.each_ref().map(|(name, value)| (*name, value.as_str()));
            limited.push(print(&limited_name, kubeleet(fleet, pods, &settings).await.0));
        }
        match by_swarm(fleet, pods).await {
            Ok(times) => swarm.push(print("Swarm", times)),
            Err(error) => swarm_error = Some(error),
        }
        serial.push(print(SERIAL_WORKER, serial_worker::run(fleet, pods).await));
    }
    let first_cells = |by: String| [engines.to_string(), pods.to_string(), by];
    let directly = format!("the engines, {} and {} at a time each", best.launch, best.remove);
    table.row(direct.row(first_cells(directly), &direct));
    table.row(ours.row(first_cells("kubeleet".to_owned()), &direct));
    if engines > 1 {
        table.row(limited.row(first_cells(limited_name), &direct));
    }
    table.row(serial.row(first_cells(SERIAL_WORKER.to_owned()), &direct));
    let swarm = match &swarm_error {
        None => {
            table.row(swarm.row(first_cells("Swarm".to_owned()), &direct));
            swarm.json()
        }
        Some(why) => {
            println!("Docker Swarm cannot run here: {why}");
            json!({ "missing": why })
        }
    };
    json!({
        "engines": engines, "engine": fleet.engines[0].describe().await, "containers": pods,
        "best_concurrency_each": { "launch": best.launch, "remove": best.remove },
        "direct": direct.json(), "kubeleet": ours.json(), "swarm": swarm,
        "kubeleet_with_the_best_concurrency": (engines > 1).then(|| limited.json()),
        "kubeleets_own_processor_seconds": own_cpu.json(),
        "serial_worker": serial.json(),
    })
}

async fn directly(fleet: &Fleet, pods: usize, concurrency: BestConcurrency) -> Durations {
    let engines = fleet.engines.len();
    let share = |index: usize| pods / engines + usize::from(index < pods % engines);
    let begin = Instant::now();
    let launches = fleet.engines.iter().enumerate();
    let launches = launches.map(|(index, engine)| engine.launch(share(index), concurrency.launch));
    let ids = join_all(launches).await;
    let launched = begin.elapsed();
    let begin = Instant::now();
    join_all(fleet.engines.iter().zip(ids).map(|(engine, ids)| engine.remove(ids, concurrency.remove))).await;
    (launched, begin.elapsed())
}

/// Also returns the processor seconds of Redis and all daemons.
async fn kubeleet(fleet: &Fleet, pods: usize, settings: &[(&'static str, &str)]) -> (Durations, f64) {
    let cluster = fleet.cluster_with(settings).await;
    let before = cluster.rig.cpu();
    let launched = cluster.launch(&service(NAME, pods)).await;
    let own = cluster.rig.cpu().since(&before).total();
    ((launched, cluster.remove(fleet, NAME).await), own)
}

async fn by_swarm(fleet: &Fleet, pods: usize) -> Result<Durations, String> {
    let swarm = Swarm::form(fleet).await?;
    let begin = Instant::now();
    swarm.create(NAME, pods).await;
    let launched = begin.elapsed();
    let begin = Instant::now();
    swarm.delete(NAME).await;
    let removed = begin.elapsed();
    swarm.leave().await;
    Ok((launched, removed))
}
