//! The proxy's follower: it knows the content of Redis, and outlives Redis and the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeleet_tests::Fixture;
use kubeleet_tests::endpoints::read_endpoints;
use model::ids::ServiceName;
use model::network::endpoint::EndpointState;
use proxy::follow::Follower;
use proxy::snapshot::RoutingSnapshot;
use serde_json::json;
use store::{LinkOptions, Store};
use testkit::eventually::{check, eventually, eventually_within};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

type Snapshots = watch::Receiver<Arc<RoutingSnapshot>>;

fn follow(store: Store, file: &Path) -> (Snapshots, DropGuard) {
    follow_with(store, Some(file.to_owned()))
}

fn follow_with(store: Store, file: Option<PathBuf>) -> (Snapshots, DropGuard) {
    let (follower, snapshots) = Follower::new(store, file);
    let shutdown = CancellationToken::new();
    tokio::spawn(follower.run(shutdown.clone()));
    (snapshots, shutdown.drop_guard())
}

fn states(snapshots: &Snapshots) -> Vec<String> {
    let snapshot = snapshots.borrow();
    let endpoints =
        snapshot.endpoints.get(&ServiceName::new("web").unwrap()).into_iter().flat_map(|all| all.iter());
    let mut states: Vec<String> =
        endpoints.map(|one| format!("{} {}", one.replica, one.state.as_str())).collect();
    states.sort();
    states
}

async fn eventually_states(snapshots: &Snapshots, expected: &[&str]) {
    eventually("the snapshot follows", || async {
        let found = states(snapshots);
        check(found == expected, || format!("{found:?}, not {expected:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_follower_knows_what_redis_has_and_serves_it_without_redis() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known.json");
    let session = fixture.node("w1").await;
    let (snapshots, following) = follow(fixture.store.clone(), &file);
    let service = json!({"name": "web", "image": "nginx", "replicas": 2,
        "ingress": [{"host": "web.example", "port": 80}]});
    let service = fixture.service_of(service).await;
    eventually("the route is known", || async {
        let snapshot = snapshots.borrow();
        check(snapshot.routes.http("web.example", "/").is_some(), || "not yet".to_owned())
    })
    .await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    eventually_states(&snapshots, &["0 ready", "1 ready"]).await;

    let record = fixture.pods(&service.name).await.remove(0);
    fixture.stop(&record).await;
    eventually_states(&snapshots, &["0 leaving", "1 ready"]).await;

    // The next message does not follow the known version.
    let _: u64 = fixture.redis.cli(&["HINCRBY", "ep:web", "v", "1"]).await;
    fixture.finish_stopped(&session, &record).await;
    eventually_states(&snapshots, &["1 ready"]).await;

    eventually("it is saved", || async {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        check(text.contains("1 w1") && !text.contains("leaving"), || text)
    })
    .await;
    drop(following);
    let away = Store::new("redis://127.0.0.1:1".parse().unwrap(), LinkOptions::default());
    let (snapshots, _following) = follow(away, &file);
    assert_eq!(states(&snapshots), ["1 ready"], "before Redis has answered");
    assert!(snapshots.borrow().routes.http("web.example", "/").is_some());
}

#[tokio::test]
async fn the_versions_of_many_services_are_read_together_and_kept_and_only_good_ones_count() {
    let fixture = Fixture::new().await;
    let names = ["web", "unfollowed", "broken", "torn"].map(|name| ServiceName::new(name).unwrap());
    let (version, _) =
        read_endpoints(&fixture.store, &names[0], None).await.unwrap().expect("nothing was known");
    let _: bool = fixture.redis.cli(&["EXPIRE", "ep:web", "100"]).await;
    let () = fixture.redis.cli(&["SET", "ep:broken", "text"]).await;
    let _: u64 = fixture.redis.cli(&["HSET", "ep:torn", "m", &version.master, "v", "many"]).await;
    let versions = async || fixture.store.endpoint_versions(&names).await.unwrap();
    assert_eq!(versions().await, [Some(version), None, None, None]);
    let kept: u64 = fixture.redis.cli(&["TTL", "ep:web"]).await;
    assert!(kept > 3500, "{kept}");
    let _: u64 = fixture.redis.cli(&["HSET", "meta", "changed_at", "1700000000000"]).await;
    assert_eq!(versions().await, [None, None, None, None]);
}

#[tokio::test]
async fn a_new_follower_knows_many_services_soon() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let many = 100;
    for number in 0..many {
        let route = json!([{"host": format!("s{number}.example"), "port": 80}]);
        let name = format!("s{number}");
        fixture.service_of(json!({"name": name, "image": "nginx", "replicas": 0, "ingress": route})).await;
    }
    let begun = Instant::now();
    let (snapshots, _following) = follow(fixture.store.clone(), &folder.path().join("known.json"));
    eventually("all services are known", || async {
        let known = snapshots.borrow().endpoints.len();
        check(known == many, || format!("{known} are"))
    })
    .await;
    // At the pace after a failover it would take nine.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_follower_that_missed_a_change_finds_it_when_it_compares() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let session = fixture.node("w1").await;
    let (snapshots, _following) = follow(fixture.store.clone(), &folder.path().join("known.json"));
    fixture.service_of(json!({"name": "web", "image": "nginx", "ingress": [{"port": 80}]})).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    eventually_states(&snapshots, &["0 ready"]).await;
    let pods: Vec<String> = fixture.redis.cli(&["HKEYS", "ep:web"]).await;
    let pod = pods.iter().find(|field| !["v", "m", "s"].contains(&field.as_str())).unwrap();
    let _: u64 = fixture.redis.cli(&["HDEL", "ep:web", pod]).await;
    let _: u64 = fixture.redis.cli(&["HINCRBY", "ep:web", "v", "1"]).await;
    eventually_within(Duration::from_secs(30), "the snapshot follows", || async {
        check(states(&snapshots).is_empty(), || format!("{:?}", states(&snapshots)))
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_has_lost_everything_takes_no_route_away() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let session = fixture.node("w1").await;
    let (snapshots, _following) = follow(fixture.store.clone(), &folder.path().join("known.json"));
    let service = json!({"name": "web", "image": "nginx", "ingress": [{"port": 80}]});
    fixture.service_of(service).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    eventually_states(&snapshots, &["0 ready"]).await;
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another", "changed_at", "1"]).await;
    for channel in ["wake:routes", "ep:web"] {
        let _: u64 = fixture.redis.cli(&["PUBLISH", channel, "read"]).await;
    }
    // Its endpoints are made anew within the spread of rereads: then the routes were read long ago.
    eventually("the follower has read", || async {
        let is_made: bool = fixture.redis.cli(&["HEXISTS", "ep:web", "v"]).await;
        check(is_made, || "not yet".to_owned())
    })
    .await;
    assert_eq!(states(&snapshots), ["0 ready"]);
    assert!(snapshots.borrow().routes.http("any.example", "/").is_some());
}

async fn counted(fixture: &Fixture, command: &str, what: &str) -> f64 {
    let stats: String = fixture.redis.cli(&["INFO", "commandstats"]).await;
    let head = format!("cmdstat_{command}:");
    let line = stats.lines().find_map(|line| line.strip_prefix(&head)).unwrap_or_default();
    let number = line.split(',').find_map(|pair| pair.strip_prefix(what)?.strip_prefix('=')?.parse().ok());
    number.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_followers_read_a_large_service_again_in_pages_and_one_of_them_makes_it() {
    const PODS: usize = 10_000;
    let fixture = Fixture::new().await;
    fixture.service_of(json!({"name": "web", "image": "nginx", "ingress": [{"port": 80}]})).await;
    let script = "for i = 1, ARGV[1] do redis.call('HSET', 'slots:web', i, 'p' .. i) \
                  redis.call('HSET', 'pod:p' .. i, 'service', 'web', 'phase', 'running', 'node', 'w1', 'assignment', 'a', \
                  'replica', i, 'reason', '') end return 1";
    let _: u64 = fixture.redis.cli(&["EVAL", script, "0", &PODS.to_string()]).await;
    let followers: Vec<_> = (0..20)
        .map(|_| {
            let store = Store::new(fixture.redis.url().parse().unwrap(), LinkOptions::default());
            follow_with(store, None)
        })
        .collect();
    let web = ServiceName::new("web").unwrap();
    let all_know = async |state: EndpointState| {
        let knows = |(snapshots, _): &&(Snapshots, DropGuard)| {
            let snapshot = snapshots.borrow();
            let endpoints = snapshot.endpoints.get(&web).into_iter().flat_map(|all| all.iter());
            endpoints.filter(|endpoint| endpoint.state == state).count() == PODS
        };
        eventually_within(Duration::from_secs(60), "all followers know all pods", || async {
            let known = followers.iter().filter(knows).count();
            check(known == followers.len(), || format!("{known} do"))
        })
        .await;
    };
    all_know(EndpointState::Ready).await;
    let unready = "for i = 1, ARGV[1] do redis.call('HSET', 'pod:p' .. i, 'reason', 'x') end return 1";
    let _: u64 = fixture.redis.cli(&["EVAL", unready, "0", &PODS.to_string()]).await;
    let () = fixture.redis.cli(&["CONFIG", "RESETSTAT"]).await;
    let _: u64 = fixture.redis.cli(&["HSET", "meta", "changed_at", "1700000000000"]).await;
    for channel in ["wake:routes", "ep:web"] {
        let _: u64 = fixture.redis.cli(&["PUBLISH", channel, "read"]).await;
    }
    all_know(EndpointState::Running).await;
    let looked_up = counted(&fixture, "hget", "calls").await;
    assert!(looked_up < 2.0 * PODS as f64, "the set was made once: {looked_up} endpoints were looked up");
    // While the tests use all cores one call may take any time.
    for command in ["hscan", "evalsha"] {
        let micros = counted(&fixture, command, "usec_per_call").await;
        assert!(micros > 0.0 && micros < 10_000.0, "{command}: {micros} microseconds for a call");
    }
}
