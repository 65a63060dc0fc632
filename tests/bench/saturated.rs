//! No false deaths on a machine that is too busy: all cores are kept at work by threads that never rest, twice as many as
//! there are cores, while nodes beat every second and would be declared dead after six.

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use reqwest::Method;
use serde_json::json;

use crate::args::Args;
use crate::beats::Seen;
use crate::observe;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};

const NODES: u32 = 30;
const PODS_EACH: u32 = 20;
const SETTINGS: &[(&str, &str)] =
    &[("KUBELEET_HEARTBEAT", "1s"), ("KUBELEET_FENCE_AFTER", "4s"), ("KUBELEET_DEAD_AFTER", "6s")];
const DEAD_AFTER: f64 = 6.0;
/// Several times for each beat.
const LOOK: Duration = Duration::from_millis(200);

pub async fn run(args: &Args) {
    let watched = Duration::from_secs_f64(args.minutes() * 60.0);
    let (nodes, pods) = (args.nodes.unwrap_or(NODES), args.pods.unwrap_or(NODES * PODS_EACH));
    let (rig, http) = cluster(nodes).await;
    launch(&rig, &http, pods).await;

    let mut seen = Seen::from_now(&rig.redis).await;
    let load = Load::new();
    let (cores, cpu, begun) = (Cores::now(), rig.cpu(), Instant::now());
    watch(&mut seen, watched).await;
    let (idle, took) = (cores.idle_share(), rig.cpu().since(&cpu).total() / begun.elapsed().as_secs_f64());
    let threads = load.threads.len();
    drop(load);

    let title = format!(
        "{nodes} nodes with {pods} pods, heartbeat 1 s, fence 4 s, dead 6 s, beside {threads} threads that never rest"
    );
    let head = [
        "minutes",
        "cores idle",
        "cores the cluster got",
        "longest gap between beats",
        "registered again",
        "declared dead",
        "pods moved",
    ];
    let mut table = Table::new(&title, &head);
    table.row(vec![
        format!("{:.1}", watched.as_secs_f64() / 60.0),
        format!("{:.1} %", idle * 100.0),
        format!("{took:.2}"),
        format!("{:.2} s ({})", seen.longest.0, seen.longest.1),
        seen.registered.to_string(),
        seen.deaths.len().to_string(),
        seen.moved.to_string(),
    ]);
    table.print();
    tell(&seen);
    save(
        "saturated",
        &json!({
            "nodes": nodes, "pods": pods, "seconds": watched.as_secs_f64(), "threads": threads,
            "cores_idle_share": idle, "cores_of_the_cluster": took, "longest_gap_seconds": seen.longest.0,
            "longest_gap_of": seen.longest.1, "registered_again": seen.registered, "false_deaths": seen.deaths,
            "pods_moved": seen.moved,
        }),
    );
}

fn tell(seen: &Seen) {
    println!();
    for death in &seen.deaths {
        println!("FALSE DEATH: {death}");
    }
    if seen.deaths.is_empty() {
        println!("no false death");
        if seen.longest.0 > DEAD_AFTER {
            let node = &seen.longest.1;
            println!("but {node} was silent for too long: it came back just then, or too many were at once");
        }
    }
}

/// Says once a minute how it goes: half an hour is long.
async fn watch(seen: &mut Seen, watched: Duration) {
    let begun = Instant::now();
    let mut minutes = 1;
    while begun.elapsed() < watched {
        tokio::time::sleep(LOOK).await;
        seen.look().await;
        if begun.elapsed() > Duration::from_secs(60 * minutes) {
            let (gap, deaths) = (seen.longest.0, seen.deaths.len());
            println!("  {minutes} min: longest gap {gap:.2} s, declared dead {deaths}");
            minutes += 1;
        }
    }
}

/// Each worker a process, as on real nodes.
async fn cluster(nodes: u32) -> (Rig, Http) {
    let mut rig = Rig::new(Persistence::Everysec, SETTINGS).await;
    for number in 1..=nodes {
        rig.workers(&format!("w{number}"), 1).await;
    }
    rig.scheduler();
    let http = rig.api().await;
    http.nodes_ready(nodes as usize).await;
    (rig, http)
}

async fn launch(rig: &Rig, http: &Http, pods: u32) {
    let mut connection = rig.connection().await;
    let body = json!({ "name": "bench", "image": "nginx:1.27", "replicas": pods });
    let (status, answer) = http.send(Method::POST, "/service", Some(&body)).await;
    assert_eq!(status.as_u16(), 201, "{answer}");
    let running = async || observe::running(&mut connection, &rig.nodes).await;
    observe::until("running", u64::from(pods), Instant::now(), running).await;
    rig.until_idle(Duration::from_secs(20)).await;
}

/// Threads that never rest, of the same priority as everybody else's. Dropped, they end.
struct Load {
    enough: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn new() -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spin = |_| {
            let enough = enough.clone();
            thread::spawn(move || {
                let mut turns: u64 = 0;
                while !enough.load(Ordering::Relaxed) {
                    turns = black_box(turns.wrapping_add(1));
                }
            })
        };
        Self { threads: (0..2 * cores).map(spin).collect(), enough }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// What the cores had done at some moment.
struct Cores(Vec<f64>);

impl Cores {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = stat.lines().next().unwrap_or_default();
        Self(all.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect())
    }

    /// The share of the time since then in which cores had nothing to do.
    fn idle_share(&self) -> f64 {
        let since: Vec<f64> = Self::now().0.iter().zip(&self.0).map(|(now, then)| now - then).collect();
        // user, nice, system, idle, iowait …
        since.iter().skip(3).take(2).sum::<f64>() / since.iter().sum::<f64>()
    }
}
