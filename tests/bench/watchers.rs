//! Clients ask for all usage of a node every two seconds, as `kubeleet top` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubeleet_tests::Http;
use reqwest::Method;
use serde_json::json;
use testkit::eventually::{check, eventually_within};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::observe;
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};

const PODS: u32 = 1_000;
const SMOKE_PODS: u32 = 20;
const WATCHERS: &[u32] = &[0, 1, 50];
const INTERVAL: Duration = Duration::from_secs(2);
/// The first answers are slower: the worker begins to measure.
const WARM_UP: Duration = Duration::from_secs(6);
const TIME: Duration = Duration::from_secs(30);
const SMOKE_TIME: Duration = Duration::from_secs(2);
/// Pods that a bench leaves behind end by themselves.
const POD_SECONDS: &str = "1800";

pub async fn run(args: &Args) {
    let pods = args.pods.unwrap_or(args.size(PODS, SMOKE_PODS));
    let time = args.size(TIME, SMOKE_TIME);
    let (rig, http) = start_node(pods).await;
    let title = format!("One node with {pods} pods, each a process: % of a core");
    let mut table = Table::new(&title, &["clients", "worker", "api", "scheduler", "redis", "answers/s"]);
    let mut results = Vec::new();
    for count in WATCHERS {
        let watchers = watch(&http, *count);
        tokio::time::sleep(args.size(WARM_UP, INTERVAL)).await;
        let (cpu, answered, begin) = (rig.cpu(), watchers.answered(), Instant::now());
        tokio::time::sleep(time).await;
        let (cpu, seconds) = (rig.cpu().since(&cpu), begin.elapsed().as_secs_f64());
        let rate = (watchers.answered() - answered) as f64 / seconds;
        watchers.end(pods).await;
        let percent = ["worker", "api", "scheduler", "redis"].map(|kind| cpu.0[kind] / seconds * 100.0);
        let mut row = vec![count.to_string()];
        row.extend(percent.iter().map(|percent| format!("{percent:.1}")));
        row.push(format!("{rate:.1}"));
        table.row(row);
        let [worker, api, scheduler, redis] = percent;
        results.push(json!({
            "clients": count, "answers_per_second": rate,
            "percent_of_a_core": { "worker": worker, "api": api, "scheduler": scheduler, "redis": redis },
        }));
    }
    table.print();
    remove_pods(&rig, &http).await;
    save("watchers", &json!({ "pods": pods, "seconds": time.as_secs_f64(), "by_clients": results }));
}

async fn start_node(pods: u32) -> (Rig, Http) {
    let mut rig = Rig::new(Persistence::Everysec, &[]).await;
    let runtime = [("KUBELEET_RUNTIME", "process"), ("KUBELEET_ALLOW_PROCESSES", "true")];
    let node = [("KUBELEET_NODE", "w"), ("KUBELEET_MAX_PODS", "100000"), ("KUBELEET_MEMORY", "1TiB")];
    rig.start("worker", "worker", &[runtime.as_slice(), &node].concat());
    rig.nodes = vec!["w".to_owned()];
    rig.scheduler();
    let http = rig.api().await;
    http.nodes_ready(1).await;
    let command = ["sleep", POD_SECONDS];
    let service = json!({ "name": "bench", "image": "none", "command": command, "replicas": pods });
    rig.run_service(&http, &service).await;
    rig.wait_until_idle(Duration::from_secs(60)).await;
    (rig, http)
}

async fn remove_pods(rig: &Rig, http: &Http) {
    let (status, answer) = http.send(Method::DELETE, "/service/bench", None).await;
    assert!(status.is_success(), "{answer}");
    let connection = rig.connection().await;
    eventually_within(Duration::from_secs(120), "all pods are stopped", || {
        let mut connection = connection.clone();
        async move {
            let left = observe::running(&mut connection, &rig.nodes).await;
            check(left == 0, || format!("{left} run"))
        }
    })
    .await;
}

struct Watchers {
    tasks: JoinSet<()>,
    http: Http,
    answers: Arc<AtomicU64>,
}

fn watch(http: &Http, count: u32) -> Watchers {
    let mut tasks = JoinSet::new();
    let answers = Arc::new(AtomicU64::new(0));
    for number in 0..count {
        let (http, answers) = (http.clone(), answers.clone());
        let first = tokio::time::Instant::now() + INTERVAL * number / count;
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval_at(first, INTERVAL);
            loop {
                ticks.tick().await;
                let (status, answer) = http.send(Method::GET, "/stats", None).await;
                assert!(status.is_success(), "{answer}");
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    Watchers { tasks, http: http.clone(), answers }
}

impl Watchers {
    fn answered(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    async fn end(mut self, pods: u32) {
        if !self.tasks.is_empty() {
            assert!(self.tasks.try_join_next().is_none(), "a client was not answered");
            let (_, answer) = self.http.send(Method::GET, "/stats", None).await;
            assert_eq!(answer["pods"].as_array().map(Vec::len), Some(pods as usize));
        }
        self.tasks.shutdown().await;
    }
}
