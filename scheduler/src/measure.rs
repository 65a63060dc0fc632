//! What the scheduler counts.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const PLACED: &str = "kubeleet_pods_placed_total";
const PARKED: &str = "kubeleet_pods_parked_total";
const BATCH: &str = "kubeleet_placement_batch_seconds";
const DEAD: &str = "kubeleet_nodes_declared_dead_total";
const FAILURES: &str = "kubeleet_loop_failures_total";
const BRAKE: &str = "kubeleet_mass_loss_brake";

/// Says what each metric means.
pub(crate) fn describe() {
    describe_counter!(PLACED, "Pods given to a node by this scheduler");
    describe_counter!(PARKED, "Times a pod was recorded as unschedulable by this scheduler");
    describe_histogram!(BATCH, metrics::Unit::Seconds, "Time to place one batch of pods");
    describe_counter!(DEAD, "Nodes declared dead by this scheduler");
    describe_counter!(FAILURES, "Failed steps of a control loop");
    describe_gauge!(BRAKE, "1 while so many nodes are silent that none is declared dead");
}

pub(crate) fn placed(pods: usize) {
    counter!(PLACED).increment(pods as u64);
}

pub(crate) fn parked(pods: usize) {
    counter!(PARKED).increment(pods as u64);
}

pub(crate) fn batch_took(time: Duration) {
    histogram!(BATCH).record(time);
}

pub(crate) fn declared_dead() {
    counter!(DEAD).increment(1);
}

pub(crate) fn loop_failed(name: &'static str) {
    counter!(FAILURES, "loop" => name).increment(1);
}

pub(crate) fn brake(on: bool) {
    gauge!(BRAKE).set(if on { 1.0 } else { 0.0 });
}
