//! Ring 2: every script through its verb, on a real Redis, and the invariants each has to hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ablations;
mod checks;
mod confirming;
mod events;
mod every_verb;
mod letters;
mod nodes;
mod payloads;
mod scale;
mod scheduling;
mod services;
mod verbs;
mod working;

use kubeleet_tests::Bed;

/// Does it, and makes sure that nothing in Redis is different afterwards.
async fn changing_nothing<T>(bed: &Bed, verb: impl Future<Output = T>) -> T {
    let before = bed.keyspace().await;
    let answer = verb.await;
    assert_eq!(before.changes(&bed.keyspace().await), Vec::<String>::new());
    answer
}
