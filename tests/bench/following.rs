//! The cost in Redis of proxies that follow services, and the delay of changes.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kubeleet_tests::endpoints::read_endpoints;
use kubeleet_tests::{Http, Redis};
use model::ids::ServiceName;
use model::network::endpoint::EndpointState;
use proxy::follow::Follower;
use proxy::snapshot::RoutingSnapshot;
use reqwest::Method;
use serde_json::{Value, json};
use store::{EndpointChange, LinkOptions, Store};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::args::Args;
use crate::observe;
use crate::placement::{self, PlacementRun};
use crate::report::{Table, save};
use crate::rig::{Persistence, Rig};
use crate::stats::Series;

const FOLLOWERS: usize = 1_000;
const SERVICES: usize = 100;
const PODS_OF_SERVICE: u32 = 100;
const CHANGES: usize = 30;
const IDLE_TIME: Duration = Duration::from_secs(20);
/// Each follower reads ten services a second.
const KNOWN_WITHIN: Duration = Duration::from_secs(120);
const FOLLOWERS_OF_ONE: usize = 100;
const LARGE: [usize; 2] = [10_000, 100_000];
const READ_WITHIN: Duration = Duration::from_secs(600);
const PLACED_PODS: u32 = 20_000;
const PLACED_NODES: u32 = 500;
const PLACED_RUNS: usize = 5;

type Snapshots = watch::Receiver<Arc<RoutingSnapshot>>;

pub async fn run(args: &Args) {
    daemon::file_limit::raise();
    let results = json!({
        "changes": changes(args).await,
        "large_services": large_services(args).await,
        "placement": placements(args).await,
    });
    save("following", &results);
}

fn name_of(number: usize) -> ServiceName {
    ServiceName::new(format!("s{number}")).unwrap()
}

fn follow(redis: &Redis) -> (Snapshots, DropGuard) {
    let store = Store::new(redis.url().parse().unwrap(), LinkOptions::default());
    let (follower, snapshots) = Follower::new(store, None);
    let shutdown = CancellationToken::new();
    tokio::spawn(follower.run(shutdown.clone()));
    (snapshots, shutdown.drop_guard())
}

fn ready(snapshot: &RoutingSnapshot, service: &ServiceName) -> usize {
    let endpoints = snapshot.endpoints.get(service).into_iter().flat_map(|all| all.iter());
    endpoints.filter(|endpoint| endpoint.state == EndpointState::Ready).count()
}

async fn until_ready(mut snapshots: Snapshots, service: ServiceName, wanted: usize) -> Instant {
    let known = snapshots.wait_for(|snapshot| ready(snapshot, &service) == wanted);
    tokio::time::timeout(KNOWN_WITHIN, known).await.expect("a follower does not know it").unwrap();
    Instant::now()
}

fn published(url: &str) -> mpsc::Receiver<(Instant, EndpointChange)> {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut messages = connection.as_pubsub();
        messages.psubscribe("ep:*").unwrap();
        while let Ok(message) = messages.get_message() {
            let change = EndpointChange::parse(message.get_payload_bytes());
            if change.is_some_and(|change| sender.send((Instant::now(), change)).is_err()) {
                return;
            }
        }
    });
    receiver
}

fn changed_at(published: &mpsc::Receiver<(Instant, EndpointChange)>, becomes_ready: bool) -> Instant {
    let is_it = |change: &EndpointChange| {
        let states = change.changes.iter().map(|(_, endpoint)| endpoint.as_ref().map(|one| one.state));
        states.clone().any(|state| (state == Some(EndpointState::Ready)) == becomes_ready)
            && states.clone().all(|state| state != Some(EndpointState::Running))
    };
    published.try_iter().find(|(_, change)| is_it(change)).expect("no change was published").0
}

async fn scale(http: &Http, service: &ServiceName, replicas: u32) {
    let path = format!("/service/{service}");
    let (status, answer) = http.send(Method::PATCH, &path, Some(&json!({ "replicas": replicas }))).await;
    assert!(status.is_success(), "{answer}");
}

async fn changes(args: &Args) -> Value {
    let (count, services) = (args.size(FOLLOWERS, 20), args.size(SERVICES, 3));
    let (rig, http) = Rig::cluster(Persistence::Everysec, args.size(10, 2), 1, &[]).await;
    let replicas = args.size(PODS_OF_SERVICE, 5);
    for number in 0..services {
        let host = format!("{}.example", name_of(number));
        let ingress = json!([{ "host": host, "port": 80 }]);
        let service = json!({ "name": name_of(number), "image": "nginx:1.27", "replicas": replicas, "ingress": ingress });
        let (status, answer) = http.send(Method::POST, "/service", Some(&service)).await;
        assert_eq!(status.as_u16(), 201, "{answer}");
    }
    let (mut connection, pods) = (rig.connection().await, services as u64 * u64::from(replicas));
    let running = async || observe::running(&mut connection, &rig.nodes).await;
    observe::until("running", pods, Instant::now(), running).await;

    let begin = Instant::now();
    let followers: Vec<(Snapshots, DropGuard)> = (0..count).map(|_| follow(&rig.redis)).collect();
    let all = |service: &ServiceName, wanted: u32| {
        let one = |(snapshots, _): &(Snapshots, DropGuard)| {
            until_ready(snapshots.clone(), service.clone(), wanted as usize)
        };
        join_all(followers.iter().map(one).map(tokio::spawn).collect::<Vec<_>>())
    };
    for number in 0..services {
        all(&name_of(number), replicas).await;
    }
    let known = begin.elapsed();
    rig.wait_until_idle(Duration::from_secs(30)).await;
    let idle_time = args.size(IDLE_TIME, Duration::from_secs(1));
    let cpu = rig.cpu();
    tokio::time::sleep(idle_time).await;
    let idle = rig.cpu().since(&cpu).0["redis"] / idle_time.as_secs_f64() * 100.0;

    let (mut delays, mut last) = (Series::default(), Series::default());
    let published = published(&rig.redis.url());
    for number in 0..args.size(CHANGES, 2) {
        let service = name_of(number % services);
        for wanted in [replicas - 1, replicas] {
            let knowing = all(&service, wanted);
            published.try_iter().for_each(drop);
            scale(&http, &service, wanted).await;
            let known = knowing.await;
            let begin = changed_at(&published, wanted == replicas);
            let mut slowest = 0.0_f64;
            for at in known {
                let millis = at.unwrap().saturating_duration_since(begin).as_secs_f64() * 1e3;
                delays.push(millis);
                slowest = slowest.max(millis);
            }
            last.push(slowest);
        }
    }
    let mut table = Table::new(
        "Followers: from the change of a pod in Redis until each of them knows it",
        &["followers", "services", "pods", "all known s", "Redis, idle %", "p50 ms", "p99 ms", "the last ms"],
    );
    table.row(vec![
        count.to_string(),
        services.to_string(),
        pods.to_string(),
        format!("{:.1}", known.as_secs_f64()),
        format!("{idle:.1}"),
        format!("{:.0}", delays.median()),
        format!("{:.0}", delays.quantile(0.99)),
        last.show(0),
    ]);
    table.print();
    json!({
        "followers": count, "services": services, "pods": pods, "known_seconds": known.as_secs_f64(),
        "idle_redis_percent": idle, "p50_millis": delays.median(), "p99_millis": delays.quantile(0.99),
        "last_millis": last.json(),
    })
}

async fn large_services(args: &Args) -> Value {
    let title = format!("{FOLLOWERS_OF_ONE} followers read one service again after a failover");
    let columns = [
        "pods",
        "all read s",
        "Redis, CPU s",
        "longest command ms",
        "PING p50 ms",
        "p99 ms",
        "longest ms",
        "output buffers MB",
    ];
    let mut table = Table::new(&title, &columns);
    let mut results = Vec::new();
    for pods in LARGE {
        let pods = args.size(pods, 1_000);
        let (row, result) = large_service(args.size(FOLLOWERS_OF_ONE, 5), pods).await;
        table.row(row);
        results.push(result);
    }
    table.print();
    json!(results)
}

async fn write_pods(redis: &Redis, pods: usize, reason: &str) {
    let script = "for i = ARGV[1], ARGV[2] do redis.call('HSET', 'slots:web', i, 'p' .. i) \
                  redis.call('HSET', 'pod:p' .. i, 'service', 'web', 'phase', 'running', 'node', 'worker1', 'assignment', \
                  '8b1b4c1e-6f6e-4d5b-9f2f-3d0c4b6f7a10', 'replica', i, 'reason', ARGV[3]) end return 1";
    for begin in (1..=pods).step_by(1_000) {
        let (begin, end) = (begin.to_string(), (begin + 999).min(pods).to_string());
        let _: u64 = redis.cli(&["EVAL", script, "0", &begin, &end, reason]).await;
    }
}

async fn large_service(followers: usize, pods: usize) -> (Vec<String>, Value) {
    let redis = Persistence::Everysec.redis().await;
    let _: u64 = redis.cli(&["HSET", "routes", "web.example/", "web 80"]).await;
    write_pods(&redis, pods, "").await;
    let web = ServiceName::new("web").unwrap();
    let all: Vec<(Snapshots, DropGuard)> = (0..followers).map(|_| follow(&redis)).collect();
    let all_know = |is_ready: bool| {
        let one = |(snapshots, _): &(Snapshots, DropGuard)| {
            let (mut snapshots, web) = (snapshots.clone(), web.clone());
            async move {
                let knows = |snapshot: &Arc<RoutingSnapshot>| {
                    let known = snapshot.endpoints.get(&web).map_or(0, |all| all.iter().count());
                    known == pods && ready(snapshot, &web) == if is_ready { pods } else { 0 }
                };
                let known = snapshots.wait_for(knows);
                tokio::time::timeout(READ_WITHIN, known).await.expect("a follower does not know it").unwrap();
            }
        };
        join_all(all.iter().map(one).map(tokio::spawn).collect::<Vec<_>>())
    };
    all_know(true).await;
    write_pods(&redis, pods, "Unhealthy").await;
    let () = redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]).await;
    let () = redis.cli(&["SLOWLOG", "RESET"]).await;
    let (cpu, begin) = (info(&redis, "used_cpu_user").await, Instant::now());
    let _: u64 = redis.cli(&["HSET", "meta", "changed_at", "1700000000000"]).await;
    let _: u64 = redis.cli(&["PUBLISH", "ep:web", ""]).await;
    let (mut pings, mut buffers) = (Series::default(), 0.0_f64);
    let mut knowing = std::pin::pin!(all_know(false));
    loop {
        let asked = Instant::now();
        let _: String = redis.cli(&["PING"]).await;
        pings.push(asked.elapsed().as_secs_f64() * 1e3);
        buffers = buffers.max(info(&redis, "mem_clients_normal").await / 1e6);
        if tokio::time::timeout(Duration::from_millis(20), &mut knowing).await.is_ok() {
            break;
        }
    }
    let read = begin.elapsed().as_secs_f64();
    let cpu = info(&redis, "used_cpu_user").await - cpu;
    let slow: Vec<(u64, u64, u64)> = redis
        .cli::<Vec<Vec<redis::Value>>>(&["SLOWLOG", "GET", "128"])
        .await
        .iter()
        .map(|entry| redis::from_redis_value(redis::Value::Array(entry[..3].to_vec())).unwrap())
        .collect();
    let longest = slow.iter().map(|(_, _, micros)| *micros as f64 / 1e3).fold(0.0, f64::max);
    let figures = [read, cpu, longest, pings.median(), pings.quantile(0.99), pings.max(), buffers];
    let row =
        [pods.to_string()].into_iter().chain(figures.iter().map(|figure| format!("{figure:.1}"))).collect();
    (
        row,
        json!({
            "followers": followers, "pods": pods, "read_seconds": read, "redis_seconds": cpu,
            "longest_command_millis": longest, "ping_p50_millis": pings.median(),
            "ping_p99_millis": pings.quantile(0.99), "ping_max_millis": pings.max(), "output_buffer_megabytes": buffers,
        }),
    )
}

async fn info(redis: &Redis, field: &str) -> f64 {
    let all: String = redis.cli(&["INFO"]).await;
    observe::info(&all, field).parse().unwrap_or_default()
}

async fn placements(args: &Args) -> Value {
    let pods = args.pods.unwrap_or(args.size(PLACED_PODS, 100));
    let nodes = args.nodes.unwrap_or(args.size(PLACED_NODES, 5));
    let (mut redis, mut seconds) =
        ([Series::default(), Series::default()], [Series::default(), Series::default()]);
    for _ in 0..args.runs(PLACED_RUNS) {
        for is_followed in [false, true] {
            let (rig, http) = Rig::cluster(Persistence::Everysec, nodes, args.schedulers, &[]).await;
            let _following = if is_followed { Some(follow_before_it_is(&rig).await) } else { None };
            let run: PlacementRun = placement::measure_in(&rig, &http, pods, false).await.0;
            redis[usize::from(is_followed)].push(run.cpu.0["redis"]);
            seconds[usize::from(is_followed)].push(run.running.as_secs_f64());
        }
    }
    let mut table =
        Table::new(&format!("Placement of {pods} pods on {nodes} nodes"), &["", "running s", "Redis, CPU s"]);
    for (row, name) in ["not followed", "followed"].iter().enumerate() {
        table.row(vec![(*name).to_owned(), seconds[row].show(3), redis[row].show(3)]);
    }
    table.print();
    println!("followed, Redis takes {:.3} times as long", redis[1].median() / redis[0].median());
    json!({
        "unfollowed": { "running_seconds": seconds[0].json(), "redis_seconds": redis[0].json() },
        "followed": { "running_seconds": seconds[1].json(), "redis_seconds": redis[1].json() },
    })
}

/// As a proxy does when a pod has asked for it.
async fn follow_before_it_is(rig: &Rig) -> Store {
    let store = Store::new(rig.redis.url().parse().unwrap(), LinkOptions::default());
    read_endpoints(&store, &ServiceName::new(placement::SERVICE).unwrap(), None).await.unwrap();
    store
}
