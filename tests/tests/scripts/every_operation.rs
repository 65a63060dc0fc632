//! Every script refuses wrong types before any write, a repetition changes nothing, and neither does a worker
//! without the right to write (invariant 3).

use kubeleet_tests::keyspace::KeyEntry;
use kubeleet_tests::{Checkpoint, Fixture, Keyspace};
use store::StoreError;

use crate::changing_nothing;
use crate::operations::{NODE, cases, ready, ready_script, worker_scripts};

#[tokio::test]
async fn a_key_of_a_wrong_type_is_refused_before_any_write() {
    let mut failures = Vec::new();
    for case in cases() {
        let script = case.name;
        let fixture = Fixture::new().await;
        let operation = ready(&fixture, case).await;
        let (start, before) = (Checkpoint::take(&fixture.redis).await, fixture.keyspace().await);
        (operation.call)().await.unwrap_or_else(|error| panic!("{script}: {error}"));
        let after = fixture.keyspace().await;
        assert_ne!(before.changes(&after), Vec::<String>::new(), "{script} had nothing to do");
        let mut refused = 0;
        for key in keys(&before, &after) {
            start.restore(&fixture.redis).await;
            spoil(&fixture, &key, before.get(&key).or_else(|| after.get(&key))).await;
            let spoilt = fixture.keyspace().await;
            match (operation.call)().await {
                Ok(_) => continue,
                Err(StoreError::WrongType { .. }) => refused += 1,
                Err(other) => failures.push(format!("{script}, {key}: {other}")),
            }
            let mut changed = spoilt.changes(&fixture.keyspace().await);
            // The first script that asks records which Redis this is.
            let is_noted = |line: &str| {
                line.starts_with("meta changed_at: nothing") || line.starts_with("meta run_id: nothing")
            };
            changed.retain(|line| !is_noted(line));
            // external_ack is repeated for each pod alone. A set of endpoints without a version is no set
            // yet.
            if !changed.is_empty() && !["external_ack", "follow", "follow_pods"].contains(&script) {
                failures.push(format!("{script}, {key} of another type: refused, and yet {changed:?}"));
            }
        }
        // These work with keys of any type, or replace them.
        if refused == 0 && !["repair", "lease", "follow", "scheduler_beat"].contains(&script) {
            failures.push(format!("{script}: it checks the type of no key"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn keys(before: &Keyspace, after: &Keyspace) -> std::collections::BTreeSet<String> {
    let shared = [
        "events",
        "meta",
        "sq",
        "dq",
        "uq",
        "uq:at",
        "uq:why",
        "uq:class",
        "uq:by_class",
        "pushed",
        "beats",
        "nodes",
        "stop:w1",
        "unconfirmed",
    ];
    let shared = shared.into_iter().map(str::to_owned);
    before.entries().chain(after.entries()).map(|(key, _)| key.to_owned()).chain(shared).collect()
}

async fn spoil(fixture: &Fixture, key: &str, entry: Option<&KeyEntry>) {
    let () = fixture.redis.cli(&["DEL", key]).await;
    let words = match entry {
        Some(KeyEntry::Text(_)) => vec!["RPUSH", key, "not a string"],
        _ => vec!["SET", key, "a string"],
    };
    let () = fixture.redis.cli(&words).await;
}

/// Signs of life, the attempts that claims count, and wake-ups of schedulers.
fn may_change(script: &str) -> &'static [&'static str] {
    match script {
        "take" => &["schedulers:"],
        "lease" => &["lease:reconcile: its time to live"],
        "scheduler_beat" => &["scheduler:", "scheduler_forms:"],
        "heartbeat" => &["beats:", "hb:w1:", "node:w1 beat:"],
        "claim" => &["pod:"],
        "register" => &[
            "beats:",
            "hb:w1:",
            "node:w1 beat:",
            "node:w1 registered_at:",
            "node:w1 incarnation:",
            "node:w1 times:",
            "node:w1 settings:",
            "meta freed:",
            "events:",
        ],
        _ => &[],
    }
}

#[tokio::test]
async fn repeating_an_operation_after_a_lost_reply_changes_nothing() {
    for case in cases() {
        let script = case.name;
        let fixture = Fixture::new().await;
        let operation = ready(&fixture, case).await;
        (operation.call)().await.unwrap_or_else(|error| panic!("{script}: {error}"));
        let once = fixture.keyspace().await;
        (operation.call)().await.unwrap_or_else(|error| panic!("{script}, repeated: {error}"));
        let mut changes = once.changes(&fixture.keyspace().await);
        changes.retain(|line| !may_change(case.script).iter().any(|begins| line.starts_with(begins)));
        assert_eq!(changes, Vec::<String>::new(), "{script}, repeated");
        let attempts = operation.pod.filter(|_| script == "claim").map(|pod| format!("pod:{pod}"));
        if let Some(key) = attempts {
            assert_eq!(
                fixture.keyspace().await.field(&key, "attempts"),
                "2",
                "an attempt may be counted twice"
            );
        }
    }
}

#[tokio::test]
async fn a_worker_that_was_declared_dead_changes_nothing_and_gets_fenced() {
    for script in worker_scripts() {
        let fixture = Fixture::new().await;
        let operation = ready_script(&fixture, script).await;
        fixture.kill_node(NODE).await;
        let answer = changing_nothing(&fixture, (operation.call)()).await.unwrap();
        assert_eq!(answer, "Err(Dead)", "{script}");
    }
}

#[tokio::test]
async fn an_earlier_session_of_a_worker_changes_nothing_and_gets_fenced() {
    for script in worker_scripts() {
        let fixture = Fixture::new().await;
        let operation = ready_script(&fixture, script).await;
        fixture.node(NODE).await;
        let answer = changing_nothing(&fixture, (operation.call)()).await.unwrap();
        assert!(["Err(Dead)", "Err(Replaced)"].contains(&answer.as_str()), "{script}: {answer}");
    }
}

#[tokio::test]
async fn another_assignment_changes_nothing_of_the_pod_and_is_stale() {
    for (script, expected) in [
        ("heartbeat", "foreign"),
        ("ack", "[Stale]"),
        ("finish", "Stale"),
        ("lost", "Stale"),
        ("note_images", "Ok(None)"),
        ("report", "Stale"),
    ] {
        let fixture = Fixture::new().await;
        let operation = ready_script(&fixture, script).await;
        let pod = format!("pod:{}", operation.pod.as_ref().unwrap());
        let () = fixture.redis.cli(&["HSET", &pod, "assignment", "a-newer-one"]).await;
        let before = fixture.keyspace().await;
        let answer = (operation.call)().await.unwrap();
        assert!(answer.contains(expected), "{script}: {answer}");
        let mut changes = before.changes(&fixture.keyspace().await);
        changes.retain(|line| {
            !["beats:", "hb:", "node:w1 ", "meta ", "events:", "stop:w1:"].iter().any(|b| line.starts_with(b))
        });
        assert_eq!(changes, Vec::<String>::new(), "{script}");
    }
}
