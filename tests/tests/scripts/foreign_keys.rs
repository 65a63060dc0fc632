//! Foreign values in `events` and `meta`, which every script uses, stop nothing.

use std::time::Duration;

use kubeleet_tests::fixture::{ATTEMPTS, Placed};
use kubeleet_tests::{Checkpoint, Fixture};
use model::pod::lifecycle::Phase;
use store::{ClaimReply, ForeignKey};

use crate::operations::{NODE, cases, prepare};

/// Redis can add nothing after this id.
const LAST_ID: &str = "18446744073709551615-18446744073709551615";

#[tokio::test]
async fn a_script_goes_on_whatever_events_and_meta_are() {
    let broken: [&[&str]; 6] = [
        &["SET", "events", "x"],
        &["LPUSH", "events", "x"],
        &["XADD", "events", LAST_ID, "a", "b"],
        &["SET", "meta", "x"],
        &["LPUSH", "meta", "x"],
        &["HSET", "meta", "run_id", "", "changed_at", "x", "last_death_at", "x", "confirming_at", "x"],
    ];
    let mut failures = Vec::new();
    for phase in [Phase::Pending, Phase::Assigned, Phase::Running, Phase::Stopping] {
        let fixture = Fixture::new().await;
        let placed = fixture.pod_in(phase, "web", NODE).await;
        let start = Checkpoint::take(&fixture.redis).await;
        for case in cases() {
            for words in broken {
                start.restore(&fixture.redis).await;
                let operation = prepare(&fixture, case, &placed).await;
                let () = fixture.redis.cli(&["DEL", words[1]]).await;
                let _reply: redis::Value = fixture.redis.cli(words).await;
                if let Err(error) = (operation.call)().await {
                    failures.push(format!("{}, a {phase} pod, {}: {error}", case.name, words.join(" ")));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn events_of_another_type_are_set_aside_and_the_next_events_are_kept() {
    for words in [["SET", "events", "mine"], ["LPUSH", "events", "mine"]] {
        let fixture = Fixture::new().await;
        fixture.node("w1").await;
        let () = fixture.redis.cli(&["DEL", "events"]).await;
        let _reply: redis::Value = fixture.redis.cli(&words).await;
        assert_eq!(fixture.store.foreign_keys().await.unwrap(), [ForeignKey::InPlace("events")]);
        fixture.service("web", 1).await;
        let events = fixture.store.last_events(10).await.unwrap();
        assert_eq!(events[0].reason, "ServiceCreated");
        assert_eq!(fixture.store.foreign_keys().await.unwrap(), [ForeignKey::SetAside("events")]);
        let kept: u64 = fixture.redis.cli(&["EXISTS", "broken:events"]).await;
        assert_eq!(kept, 1, "what the other program wrote is still there");
    }
}

/// The content of `meta` is lost with it. A pause must not end early because of that.
#[tokio::test]
async fn meta_of_another_type_counts_as_a_change_of_the_master() {
    let fixture = Fixture::new().await;
    let Placed { session, payload, .. } = fixture.pod_in(Phase::Assigned, "web", NODE).await;
    session.pop_more(1).await.unwrap();
    let () = fixture.redis.cli(&["DEL", "meta"]).await;
    let () = fixture.redis.cli(&["SET", "meta", "x"]).await;
    let items = [fixture.claim_item(&payload).await];
    let claimed = session.claim(&items, ATTEMPTS, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(matches!(claimed, ClaimReply::Paused(_)), "{claimed:?}");
    let claimed = session.claim(&items, ATTEMPTS, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(matches!(claimed, ClaimReply::Paused(_)), "{claimed:?}");
    assert_eq!(fixture.store.foreign_keys().await.unwrap(), [ForeignKey::SetAside("meta")]);
}
