//! What holds of every script alike: wrong types are refused before any write, a repetition changes nothing, and a
//! worker that lost its right to write changes nothing (invariant 3).

use common::store::StoreError;
use kubeleet_tests::keyspace::Entry;
use kubeleet_tests::{Bed, Checkpoint, Keyspace};

use crate::changing_nothing;
use crate::verbs::{NODE, WORKERS, cases, ready};

/// What is looked at too late today, after the first write: (script, or `*` for all; key). Entries go when it is mended.
const LATE: &[(&str, &str)] = &[];

#[tokio::test]
async fn a_wrong_type_anywhere_is_refused_before_any_write() {
    let mut failures = Vec::new();
    for script in cases() {
        let bed = Bed::new().await;
        let verb = ready(&bed, script).await;
        let (start, before) = (Checkpoint::take(&bed.redis).await, bed.keyspace().await);
        (verb.call)().await.unwrap_or_else(|error| panic!("{script}: {error}"));
        let after = bed.keyspace().await;
        assert_ne!(before.changes(&after), Vec::<String>::new(), "{script} had nothing to do");
        let mut refused = 0;
        for key in keys(&before, &after) {
            start.restore(&bed.redis).await;
            spoil(&bed, &key, before.get(&key).or_else(|| after.get(&key))).await;
            let spoilt = bed.keyspace().await;
            match (verb.call)().await {
                Ok(_) => continue,
                Err(StoreError::WrongType { .. }) => refused += 1,
                Err(other) => failures.push(format!("{script}, {key}: {other}")),
            }
            let mut changed = spoilt.changes(&bed.keyspace().await);
            // Which Redis this is may be noted by whoever asks first.
            changed.retain(|line| !line.starts_with("meta: nothing -> [changed_at=\"0\", run_id="));
            let late = LATE.iter().any(|(name, late)| (*name == "*" || *name == script) && *late == key);
            if !changed.is_empty() && !late {
                failures.push(format!("{script}, {key} of another type: refused, and yet {changed:?}"));
            }
        }
        if refused == 0 {
            failures.push(format!("{script}: no key's type is looked at"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Keys that are there before or after, and those every script may use.
fn keys(before: &Keyspace, after: &Keyspace) -> std::collections::BTreeSet<String> {
    let shared = [
        "events",
        "meta",
        "sq",
        "dq",
        "uq",
        "uq:at",
        "uq:why",
        "pushed",
        "beats",
        "nodes",
        "stop:w1",
        "unconfirmed",
    ];
    let shared = shared.into_iter().map(str::to_owned);
    before.entries().chain(after.entries()).map(|(key, _)| key.to_owned()).chain(shared).collect()
}

async fn spoil(bed: &Bed, key: &str, entry: Option<&Entry>) {
    let () = bed.redis.cli(&["DEL", key]).await;
    let words = match entry {
        Some(Entry::Text(_)) => vec!["RPUSH", key, "not a string"],
        _ => vec!["SET", key, "a string"],
    };
    let () = bed.redis.cli(&words).await;
}

/// What a repetition may change, where it is not nothing: signs of life, and the attempt that claiming again is.
fn may_change(script: &str) -> &'static [&'static str] {
    match script {
        "take" => &["schedulers:"],
        "lease" => &["lease:reconcile: its time to live"],
        "heartbeat" => &["beats:", "hb:w1:", "node:w1 beat:"],
        "claim" => &["pod:"],
        "register" => &[
            "beats:",
            "hb:w1:",
            "node:w1 beat:",
            "node:w1 registered_at:",
            "node:w1 incarnation:",
            "events:",
        ],
        _ => &[],
    }
}

#[tokio::test]
async fn after_a_lost_reply_a_repetition_changes_nothing() {
    for script in cases() {
        let bed = Bed::new().await;
        let verb = ready(&bed, script).await;
        (verb.call)().await.unwrap_or_else(|error| panic!("{script}: {error}"));
        let once = bed.keyspace().await;
        (verb.call)().await.unwrap_or_else(|error| panic!("{script}, repeated: {error}"));
        let mut changes = once.changes(&bed.keyspace().await);
        changes.retain(|line| !may_change(script).iter().any(|begins| line.starts_with(begins)));
        assert_eq!(changes, Vec::<String>::new(), "{script}, repeated");
        let attempts = verb.pod.filter(|_| script == "claim").map(|pod| format!("pod:{pod}"));
        if let Some(key) = attempts {
            assert_eq!(bed.keyspace().await.field(&key, "attempts"), "2", "an attempt may be counted twice");
        }
    }
}

#[tokio::test]
async fn a_worker_that_was_declared_dead_can_change_nothing_and_learns_so() {
    for script in WORKERS {
        let bed = Bed::new().await;
        let verb = ready(&bed, script).await;
        bed.kill_node(NODE).await;
        let answer = changing_nothing(&bed, (verb.call)()).await.unwrap();
        assert_eq!(answer, "Err(Dead)", "{script}");
    }
}

#[tokio::test]
async fn an_older_life_of_a_worker_can_change_nothing_and_learns_so() {
    for script in WORKERS {
        let bed = Bed::new().await;
        let verb = ready(&bed, script).await;
        bed.node(NODE).await;
        let answer = changing_nothing(&bed, (verb.call)()).await.unwrap();
        assert!(["Err(Dead)", "Err(Replaced)"].contains(&answer.as_str()), "{script}: {answer}");
    }
}

#[tokio::test]
async fn another_assignment_can_change_nothing_of_the_pod_and_is_told_so() {
    for (script, told) in [
        ("heartbeat", "foreign"),
        ("ack", "[Stale]"),
        ("finish", "Stale"),
        ("lost", "Stale"),
        ("report", "Stale"),
    ] {
        let bed = Bed::new().await;
        let verb = ready(&bed, script).await;
        let pod = format!("pod:{}", verb.pod.as_ref().unwrap());
        let () = bed.redis.cli(&["HSET", &pod, "assignment", "a-newer-one"]).await;
        let before = bed.keyspace().await;
        let answer = (verb.call)().await.unwrap();
        assert!(answer.contains(told), "{script}: {answer}");
        let mut changes = before.changes(&bed.keyspace().await);
        // The worker's own life goes on, and it has heard that this pod is to be stopped.
        changes.retain(|line| {
            !["beats:", "hb:", "node:w1 ", "meta ", "events:", "stop:w1:"].iter().any(|b| line.starts_with(b))
        });
        assert_eq!(changes, Vec::<String>::new(), "{script}");
    }
}
