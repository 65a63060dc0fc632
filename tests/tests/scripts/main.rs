//! Every script through its operation on a real Redis, and the invariants that each must hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ablations;
mod addresses;
mod certificates;
mod channels;
mod checks;
mod clocks;
mod confirming;
mod dead_letters;
mod drains;
mod endpoints;
mod events;
mod every_operation;
mod following;
mod foreign_keys;
mod global;
mod host_ports;
mod jobs;
mod labels;
mod lifecycle;
mod maxmemory;
mod named_resources;
mod nodes;
mod numbers;
mod operations;
mod payloads;
mod phases;
mod preemption;
mod recovery;
mod relations;
mod replacing;
mod routes;
mod scale;
mod scheduling;
mod services;
mod session;
mod stored_forms;
mod unschedulable;
mod usage;
mod values;
mod volumes;
mod wrong_keys;

use kubeleet_tests::Fixture;

async fn changing_nothing<T>(fixture: &Fixture, operation: impl Future<Output = T>) -> T {
    let before = fixture.keyspace().await;
    let result = operation.await;
    assert_eq!(before.changes(&fixture.keyspace().await), Vec::<String>::new());
    result
}
