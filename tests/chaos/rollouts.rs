//! Updates a service while a plain client sends 500 requests a second through the ingress of three hosts. No
//! request may fail. Broken updates must roll back by themselves and say why; others are undone halfway. Some
//! updates lose a scheduler or the Redis master, replace all proxies, or cut these off from Redis.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::docker::DockerRuntime;
use engine::docker::sample_image::{Recipe, import_recipe};
use kubeleet_tests::docker::Docker;
use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::http::Http;
use parking_lot::Mutex;
use reqwest::{Client, Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::faults::master;
use crate::report::FaultResult;
use crate::stack::{Stack, StackOptions};

const IMAGE: &str = "kubeleet-test/rollouts:1";
const HOST: &str = "web.test";
const PORT: u16 = 8000;
/// Above it waiting requests would pile up on a slow machine, until the ingress refuses some.
const MOST_IN_FLIGHT: u64 = 100;
/// A client may have a thousand connections to one ingress.
const MOST_WAITING: u64 = 1_000;
/// With fewer in flight none waits.
const FEW: u64 = 50;
/// Longer than a request waits for a pod.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const UPDATE_LIMIT: Duration = Duration::from_secs(180);
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(20);
/// A busy engine's start, two checks, and the monitor.
const JUDGED_WITHIN: Duration = Duration::from_secs(45);

#[derive(Debug, Clone, Copy)]
pub struct Rollouts {
    /// With a fifth as many broken and a tenth as many undone, at least one of each.
    pub good: usize,
    pub replicas: u64,
    pub stops_first: bool,
    pub cut_off: bool,
    pub rate: u32,
}

impl Rollouts {
    /// A broken update would leave the service without pods until its rollback, so there is none then.
    fn has_gaps(self) -> bool {
        self.stops_first && self.replicas == 1
    }

    fn most_in_flight(self) -> u64 {
        if self.has_gaps() { MOST_WAITING } else { MOST_IN_FLIGHT }
    }

    fn proxy_settings(self) -> Vec<(&'static str, &'static str)> {
        if self.has_gaps() { vec![("KUBELEET_POD_WAIT", "40s")] } else { vec![] }
    }
}

pub async fn run(rollouts: Rollouts) -> FaultResult {
    let fault = match rollouts.cut_off {
        true => "updates, proxies without Redis",
        false => "updates under requests",
    };
    let mut result = FaultResult { fault: fault.to_owned(), ..FaultResult::default() };
    let mut stack = Stack::start(StackOptions {
        without_engine: true,
        proxy_settings: Some(rollouts.proxy_settings()),
        worker_settings: vec![
            ("KUBELEET_RUNTIME", "docker"),
            ("KUBELEET_NAMES", "off"),
            ("DOCKER_HOST", "unix:///var/run/docker.sock"),
        ],
        ..StackOptions::default()
    })
    .await;
    let Some(docker) = Docker::find(stack.prefix()).await else { return result };
    make_image().await;
    result = make_updates(&mut stack, rollouts, result).await;
    // Live workers would start their containers again.
    drop(stack);
    drop(docker);
    result
}

async fn make_updates(stack: &mut Stack, rollouts: Rollouts, mut result: FaultResult) -> FaultResult {
    let mut service = Service { https: stack.https(), rollouts, version: 0, generation: 0 };
    service.put(&good_one(rollouts, 0)).await;
    service.completes().await.unwrap();
    let ingresses = stack.proxies.iter().map(|(_, ingress)| ingress.clone()).collect();
    let load = Load::start(rollouts, ingresses);
    let mut slowest_judgement = Duration::ZERO;
    for (number, kind) in kinds(rollouts).into_iter().enumerate() {
        let begun = Instant::now();
        stack.net.cut_proxies(rollouts.cut_off || number % 10 == 4);
        let step = update(stack, &mut service, number, kind).await;
        match step {
            Ok(Some(judged)) => slowest_judgement = slowest_judgement.max(judged),
            Ok(None) => {}
            Err(wrong) => result.wrong.push(format!("update {number} ({kind:?}): {wrong}")),
        }
        result.injected += 1;
        load.catches_up().await;
        let (sent, failed) = (load.counts.sent(), load.counts.failed());
        println!("  update {number} {kind:?}: {:.1?}; {sent} requests, {failed} failed", begun.elapsed());
    }
    let counts = load.end().await;
    counts.report(slowest_judgement);
    result.wrong.extend(counts.why_failed());
    if result.is_broken() {
        result.wrong.push(format!("logs are in {}", stack.keep_logs("rollouts").display()));
    }
    result
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Good,
    Broken(Break),
    Undone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Exits,
    CannotStart,
    Unhealthy,
}

fn kinds(rollouts: Rollouts) -> Vec<Kind> {
    let breaks = [Break::Exits, Break::Unhealthy, Break::CannotStart];
    let mut kinds = Vec::new();
    for number in 0..rollouts.good {
        kinds.push(Kind::Good);
        if number % 5 == 2 && !rollouts.has_gaps() {
            kinds.push(Kind::Broken(breaks[number / 5 % breaks.len()]));
        }
        if number % 10 == 3 {
            kinds.push(Kind::Undone);
        }
    }
    kinds
}

fn good_one(Rollouts { replicas, stops_first, .. }: Rollouts, version: usize) -> Value {
    let order = if stops_first { "stop-first" } else { "start-first" };
    json!({
        "name": "web", "image": IMAGE, "pull_policy": "never", "replicas": replicas, "command": ["/greeter"],
        "stop_grace_period": "10s", "environment": {"VERSION": version.to_string()},
        "healthcheck": {"http": {"port": PORT}, "interval": "1s", "retries": 2},
        "ingress": [{"host": HOST, "port": PORT}],
        "update": {"order": order, "parallelism": 3, "monitor": "1s", "on_failure": "rollback"},
    })
}

fn broken_one(rollouts: Rollouts, version: usize, what: Break) -> Value {
    let mut service = good_one(rollouts, version);
    service["command"] = match what {
        Break::Exits => json!(["/bin/sh", "-c", "echo no database; exit 3"]),
        Break::CannotStart => json!(["/nothing"]),
        Break::Unhealthy => json!(["/bin/sleep", "86400"]),
    };
    service
}

fn reason(what: Break) -> &'static str {
    match what {
        Break::Exits => "no database",
        Break::CannotStart => "/nothing",
        Break::Unhealthy => "nhealthy",
    }
}

async fn make_image() {
    let _lock = exclusive("images").await;
    let docker = DockerRuntime::connect(None).unwrap();
    let greeter = Path::new(env!("CARGO_BIN_EXE_greeter"));
    let programs =
        [(greeter, "/greeter"), (Path::new("/bin/sh"), "/bin/sh"), (Path::new("/bin/sleep"), "/bin/sleep")];
    let recipe = Recipe { programs: &programs, command: &["/greeter"], ..Recipe::default() };
    import_recipe(&docker, recipe, IMAGE).await.unwrap();
}

struct Service {
    https: Vec<Http>,
    rollouts: Rollouts,
    version: usize,
    generation: u64,
}

impl Service {
    /// As an operator does during a failover.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let begun = Instant::now();
        loop {
            for http in &self.https {
                match http.try_send(method.clone(), path, body).await {
                    Ok(response) if response.status().is_success() => {
                        return response.json().await.unwrap_or_default();
                    }
                    Ok(response) if response.status().is_client_error() => {
                        panic!("{method} {path}: {}: {:?}", response.status(), response.text().await)
                    }
                    _ => {}
                }
            }
            assert!(begun.elapsed() < UPDATE_LIMIT, "{method} {path}: no API answers");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn put(&mut self, service: &Value) {
        let stored = self.send(Method::PUT, "/service/web", Some(service)).await;
        self.generation = stored["generation"].as_u64().unwrap();
    }

    /// The error is the service's last state.
    async fn until(&self, what: &str, is_reached: impl Fn(&Value) -> bool) -> Result<Value, String> {
        let begun = Instant::now();
        loop {
            let service = self.send(Method::GET, "/service/web", None).await;
            if is_reached(&service) {
                return Ok(service);
            }
            if begun.elapsed() > UPDATE_LIMIT {
                return Err(format!("not within {UPDATE_LIMIT:?}: {what}: {service}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn completes(&self) -> Result<(), String> {
        let is_complete = |service: &Value| is_complete(service, self.rollouts.replicas, self.generation);
        self.until("complete", is_complete).await.map(|_| ())
    }

    /// Returns the time of the judgement.
    async fn rolls_back(&mut self, why: &str, begun: Instant) -> Result<Duration, String> {
        let broken = self.generation;
        let judged =
            self.until("rolled back", |service| service["rollout"]["state"] == "rolled_back").await?;
        let judged_after = begun.elapsed();
        if judged["rollout"]["generation"] != broken {
            return Err(format!("another generation than {broken} was rolled back: {}", judged["rollout"]));
        }
        self.generation = judged["generation"].as_u64().unwrap_or_default();
        let message = judged["rollout"]["message"].as_str().unwrap_or_default();
        if !message.contains(why) {
            return Err(format!("it does not say why ({why}): {message}"));
        }
        self.completes().await?;
        Ok(judged_after)
    }
}

fn is_complete(service: &Value, replicas: u64, generation: u64) -> bool {
    let status = &service["status"];
    let is_whole = ["ready", "updated", "running"].iter().all(|count| status[count] == replicas);
    service["generation"] == generation && is_whole && status["stopping"] == 0
}

/// Returns the time until an undisturbed broken update was judged.
async fn update(
    stack: &mut Stack,
    service: &mut Service,
    number: usize,
    kind: Kind,
) -> Result<Option<Duration>, String> {
    let begun = Instant::now();
    service.version += 1;
    let version = service.version;
    service
        .put(&match kind {
            Kind::Good | Kind::Undone => good_one(service.rollouts, version),
            Kind::Broken(what) => broken_one(service.rollouts, version, what),
        })
        .await;
    let is_disturbed = number % 10 == 3;
    if is_disturbed {
        disturb(stack, number).await;
    }
    if number % 10 == 1 {
        replace_proxies(stack).await?;
    }
    match kind {
        Kind::Good => service.completes().await.map(|()| None),
        Kind::Undone => {
            service.until("one is updated", |now| now["status"]["updated"].as_u64() > Some(0)).await?;
            let undone = service.send(Method::POST, "/service/web/undo", None).await;
            service.generation = undone["generation"].as_u64().unwrap_or_default();
            service.completes().await.map(|()| None)
        }
        Kind::Broken(what) => {
            let judged = service.rolls_back(reason(what), begun).await?;
            if !is_disturbed && judged > JUDGED_WITHIN {
                return Err(format!("it was judged after {judged:.1?} only"));
            }
            Ok((!is_disturbed).then_some(judged))
        }
    }
}

async fn disturb(stack: &mut Stack, number: usize) {
    tokio::time::sleep(Duration::from_millis(500 + number as u64 * 37 % 2_000)).await;
    if number / 10 % 2 == 1 {
        return master::kill(stack).await;
    }
    let victim = number / 20 % stack.schedulers.len();
    stack.schedulers[victim].kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    stack.schedulers[victim].start_again();
}

async fn replace_proxies(stack: &Stack) -> Result<(), String> {
    for (proxy, _) in &stack.proxies {
        let times = || proxy.whole_log().matches("took the place of the former proxy").count();
        let before = times();
        // Only the process that serves acts on it.
        proxy.signal_group(Signal::HUP);
        let begun = Instant::now();
        while times() == before {
            if begun.elapsed() > TAKE_OVER_LIMIT {
                return Err("a proxy was not followed by another".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    answered: Mutex<Vec<Duration>>,
    failures: Mutex<BTreeMap<String, (usize, Duration)>>,
}

impl Counts {
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn in_flight(&self) -> u64 {
        self.sent() - self.answered.lock().len() as u64 - self.failed() as u64
    }

    fn failed(&self) -> usize {
        self.failures.lock().values().map(|(count, _)| count).sum()
    }

    fn note_failure(&self, why: String, after: Duration) {
        self.failures.lock().entry(why).or_insert((0, after)).0 += 1;
    }

    fn why_failed(&self) -> Vec<String> {
        let failures = self.failures.lock();
        let line = |(why, (count, after)): (&String, &(usize, Duration))| {
            format!("{count} requests failed, the first after {after:.1?}: {why}")
        };
        failures.iter().take(10).map(line).collect()
    }

    fn report(&self, slowest_judgement: Duration) {
        let mut times = self.answered.lock().clone();
        times.sort_unstable();
        let quantile = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        let (p50, p99, last) = (quantile(0.5), quantile(0.99), times.last().copied());
        println!(
            "{} requests, {} failed; p50 {p50:.1?}, p99 {p99:.1?}, longest {last:.1?}; a broken update was judged \
             within {slowest_judgement:.1?}",
            self.sent(),
            self.failed()
        );
    }
}

struct Load {
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(rollouts: Rollouts, addresses: Vec<String>) -> Self {
        let (counts, is_over) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn(send_requests(rollouts, addresses, counts.clone(), is_over.clone()));
        Self { counts, is_over, task }
    }

    async fn catches_up(&self) {
        let begun = Instant::now();
        while self.counts.in_flight() > FEW && begun.elapsed() < REQUEST_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn end(self) -> Arc<Counts> {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.counts
    }
}

fn clients(address: &str) -> (String, Client, Client) {
    let address: SocketAddr = address.parse().unwrap();
    let builder = || Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).resolve(HOST, address);
    let http2 = builder().http2_prior_knowledge().build().unwrap();
    (format!("http://{HOST}:{}/", address.port()), builder().build().unwrap(), http2)
}

async fn send_requests(
    rollouts: Rollouts,
    addresses: Vec<String>,
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
) {
    let clients: Vec<_> = addresses.iter().map(|address| clients(address)).collect();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / rollouts.rate);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut in_progress = JoinSet::new();
    for number in 0_usize.. {
        clock.tick().await;
        while in_progress.len() as u64 >= rollouts.most_in_flight() {
            in_progress.join_next().await;
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let method = if number % 2 == 0 { Method::GET } else { Method::POST };
        let (url, http1, http2) = &clients[number % clients.len()];
        let client = if number / 6 % 3 == 0 { http2 } else { http1 };
        let request = client.request(method, url);
        let counts = counts.clone();
        counts.sent.fetch_add(1, Ordering::Relaxed);
        in_progress.spawn(async move {
            let begun = Instant::now();
            match answer(request).await {
                Ok(()) => counts.answered.lock().push(begun.elapsed()),
                Err(why) => counts.note_failure(why, begun.elapsed()),
            }
        });
        while in_progress.try_join_next().is_some() {}
    }
    in_progress.join_all().await;
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(), String> {
    let response = request.send().await.map_err(|error| format!("{error:?}"))?;
    let status = response.status();
    let text = response.text().await.map_err(|error| format!("{error:?}"))?;
    match status == StatusCode::OK && text.starts_with("hello from ") {
        true => Ok(()),
        false => Err(format!("{status}: {text}")),
    }
}
