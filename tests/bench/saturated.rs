//! No node is declared dead by mistake while spinning threads keep all cores busy. Nodes send heartbeats
//! every second and would be dead after six.

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use serde_json::json;

use crate::args::Args;
use crate::heartbeats::HeartbeatMonitor;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};

const NODES: u32 = 30;
const PODS_EACH: u32 = 20;
const SETTINGS: &[(&str, &str)] =
    &[("KUBELEET_HEARTBEAT", "1s"), ("KUBELEET_FENCE_AFTER", "4s"), ("KUBELEET_DEAD_AFTER", "6s")];
const DEAD_AFTER: f64 = 6.0;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

pub async fn run(args: &Args) {
    let duration = Duration::from_secs_f64(args.minutes() * 60.0);
    let nodes = args.nodes.unwrap_or(args.size(NODES, 3));
    let pods = args.pods.unwrap_or(nodes * PODS_EACH);
    let (rig, http) = start_cluster(nodes).await;
    launch(&rig, &http, pods).await;

    let mut monitor = HeartbeatMonitor::start(&rig.redis).await;
    let load = SpinningThreads::start();
    let (cores, cpu, begin) = (CoreTimes::now(), rig.cpu(), Instant::now());
    observe(&mut monitor, duration).await;
    let idle_share = cores.idle_share();
    let cores_used = rig.cpu().since(&cpu).total() / begin.elapsed().as_secs_f64();
    let threads = load.threads.len();
    drop(load);

    let title = format!(
        "{nodes} nodes with {pods} pods, heartbeat 1 s, fence 4 s, dead 6 s, \
         beside {threads} spinning threads"
    );
    let header = [
        "minutes",
        "cores idle",
        "cores used by the cluster",
        "longest gap between heartbeats",
        "registered again",
        "declared dead",
        "pods moved",
    ];
    let mut table = Table::new(&title, &header);
    table.row(vec![
        format!("{:.1}", duration.as_secs_f64() / 60.0),
        format!("{:.1} %", idle_share * 100.0),
        format!("{cores_used:.2}"),
        format!("{:.2} s ({})", monitor.longest_gap.0, monitor.longest_gap.1),
        monitor.registrations.to_string(),
        monitor.deaths.len().to_string(),
        monitor.moved_pods.to_string(),
    ]);
    table.print();
    print_deaths(&monitor);
    save(
        "saturated",
        &json!({
            "nodes": nodes, "pods": pods, "seconds": duration.as_secs_f64(), "threads": threads,
            "cores_idle_share": idle_share, "cores_of_the_cluster": cores_used,
            "longest_gap_seconds": monitor.longest_gap.0, "longest_gap_of": monitor.longest_gap.1,
            "registered_again": monitor.registrations, "false_deaths": monitor.deaths,
            "pods_moved": monitor.moved_pods,
        }),
    );
}

fn print_deaths(monitor: &HeartbeatMonitor) {
    println!();
    for death in &monitor.deaths {
        println!("FALSE DEATH: {death}");
    }
    if monitor.deaths.is_empty() {
        println!("no false death");
        let (gap, node) = &monitor.longest_gap;
        if *gap > DEAD_AFTER {
            println!(
                "but {node} was silent for {gap:.1} s: it came back just then, \
                 or too many nodes were silent at once"
            );
        }
    }
}

async fn observe(monitor: &mut HeartbeatMonitor, duration: Duration) {
    let begin = Instant::now();
    let mut minutes = 1;
    while begin.elapsed() < duration {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        monitor.sample().await;
        if begin.elapsed() > Duration::from_secs(60 * minutes) {
            let (gap, deaths) = (monitor.longest_gap.0, monitor.deaths.len());
            println!("  {minutes} min: longest gap {gap:.2} s, declared dead {deaths}");
            minutes += 1;
        }
    }
}

async fn start_cluster(nodes: u32) -> (Rig, Http) {
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
    rig.run_service(http, &json!({ "name": "bench", "image": "nginx:1.27", "replicas": pods })).await;
    rig.wait_until_idle(Duration::from_secs(20)).await;
}

/// With normal priority, until this is dropped.
struct SpinningThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl SpinningThreads {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spin = |_| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut count: u64 = 0;
                while !stop.load(Ordering::Relaxed) {
                    count = black_box(count.wrapping_add(1));
                }
            })
        };
        Self { threads: (0..2 * cores).map(spin).collect(), stop }
    }
}

impl Drop for SpinningThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// By kind of work, as in /proc/stat.
struct CoreTimes(Vec<f64>);

impl CoreTimes {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = stat.lines().next().unwrap_or_default();
        Self(all.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect())
    }

    fn idle_share(&self) -> f64 {
        let since: Vec<f64> = Self::now().0.iter().zip(&self.0).map(|(now, then)| now - then).collect();
        // user, nice, system, idle, iowait …
        since.iter().skip(3).take(2).sum::<f64>() / since.iter().sum::<f64>()
    }
}
