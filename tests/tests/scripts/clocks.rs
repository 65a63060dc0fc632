//! Times in the future count as now: the clock of a former master, or a manual write, stops nothing.

use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, node};
use model::ids::SchedulerId;
use store::DeclareOutcome;
use testkit::fixtures;

const HOUR_MS: u64 = 3_600_000;
const GAP: Duration = Duration::from_secs(2);

async fn an_hour_ahead(fixture: &Fixture) -> String {
    (fixture.store.redis_now().await.unwrap() + HOUR_MS).to_string()
}

async fn declare(fixture: &Fixture, pause: Duration, gap: Duration) -> DeclareOutcome {
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    fixture.store.declare_dead(&seen, DEAD_AFTER, pause, gap, fixtures::long_proof()).await.unwrap()
}

#[tokio::test]
async fn a_heartbeat_in_the_future_counts_as_now_and_the_node_can_die() {
    for (key, command) in [("node:w1", "HSET"), ("beats", "ZADD")] {
        let fixture = Fixture::new().await;
        fixture.node("w1").await;
        let ahead = an_hour_ahead(&fixture).await;
        let () = match command {
            "HSET" => fixture.redis.cli(&[command, key, "beat", &ahead]).await,
            _ => fixture.redis.cli(&[command, key, &ahead, "w1"]).await,
        };
        assert_eq!(declare(&fixture, Duration::ZERO, Duration::ZERO).await, DeclareOutcome::Alive);
        let now = fixture.store.redis_now().await.unwrap();
        let corrected = fixture.store.node(&node("w1")).await.unwrap().unwrap();
        assert!(corrected.beat <= now, "{key}");
        assert_eq!(fixture.store.beats_since(now + 1).await.unwrap(), [], "{key}");
        fixture.kill_node("w1").await;
    }
}

#[tokio::test]
async fn a_death_in_the_future_delays_the_next_one_no_longer_than_one_of_now() {
    let fixture = Fixture::new().await;
    fixture.node("w1").await;
    fixture.silence("w1").await;
    let ahead = an_hour_ahead(&fixture).await;
    let () = fixture.redis.cli(&["HSET", "meta", "last_death_at", &ahead]).await;
    let outcome = declare(&fixture, Duration::ZERO, GAP).await;
    assert!(matches!(outcome, DeclareOutcome::Wait(left) if left <= GAP), "{outcome:?}");
    testkit::eventually("the node is declared dead", || async {
        match declare(&fixture, Duration::ZERO, GAP).await {
            DeclareOutcome::Declared => Ok(()),
            outcome => Err(format!("{outcome:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn no_node_dies_because_the_clock_of_a_new_master_is_ahead() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    declare(&fixture, Duration::ZERO, Duration::ZERO).await;
    fixture.silence("w1").await;
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    let pause = Duration::from_secs(30);
    let outcome = declare(&fixture, pause, Duration::ZERO).await;
    assert!(matches!(outcome, DeclareOutcome::Wait(left) if left > GAP), "{outcome:?}");
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    assert_eq!(declare(&fixture, Duration::ZERO, Duration::ZERO).await, DeclareOutcome::Alive);
}

#[tokio::test]
async fn a_change_of_the_master_in_the_future_pauses_no_longer_than_one_of_now() {
    for wrong in ["", "soon", "9999999999999999"] {
        let fixture = Fixture::new().await;
        let session = fixture.node("w1").await;
        session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
        let () = fixture.redis.cli(&["HSET", "meta", "changed_at", wrong]).await;
        let before = fixture.store.redis_now().await.unwrap();
        let changed_at = session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap().master_changed_at;
        let after = fixture.store.redis_now().await.unwrap();
        assert!((before..=after).contains(&changed_at), "{wrong}: {changed_at}");
        let again = session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap().master_changed_at;
        assert_eq!(again, changed_at, "{wrong}: it is stored");
    }
}

#[tokio::test]
async fn what_a_scheduler_of_the_future_had_in_flight_returns_and_a_living_one_keeps_it() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let dead = SchedulerId::random();
    assert_eq!(fixture.store.take(&dead, 1).await.unwrap().len(), 1);
    let reclaim = async |silent| fixture.store.reclaim_in_flight(&dead, silent, 10).await.unwrap();
    let ahead = an_hour_ahead(&fixture).await;
    let () = fixture.redis.cli(&["ZADD", "schedulers", &ahead, dead.as_str()]).await;
    let a_moment = Duration::from_millis(300);
    assert_eq!(reclaim(a_moment).await, None);
    testkit::eventually("it is silent", || async { reclaim(a_moment).await == Some(1) }).await;

    let () = fixture.redis.cli(&["ZADD", "schedulers", "1000", dead.as_str()]).await;
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    assert_eq!(reclaim(DEAD_AFTER).await, None);
}

#[tokio::test]
async fn a_lease_that_lasts_longer_than_anybody_asked_for_is_free() {
    let fixture = Fixture::new().await;
    let (dead, alive) = (SchedulerId::random(), SchedulerId::random());
    let lease = async |id| fixture.store.lease("reconcile", id, DEAD_AFTER).await.unwrap();
    assert!(lease(&dead).await);
    assert!(!lease(&alive).await);
    let () = fixture.redis.cli(&["PEXPIRE", "lease:reconcile", "3600000"]).await;
    assert!(lease(&alive).await);
    assert!(!lease(&dead).await);
    let () = fixture.redis.cli(&["SET", "lease:reconcile", "by hand"]).await;
    assert!(lease(&dead).await);
}
