//! Random walks over the verbs, with crashes, zombies, declared deaths and databases that forget.
//!
//! Two schedulers, three workers and whoever else does random things, each with knowledge that may be stale. After every
//! step the invariants that hold at every instant are checked on all that stands in Redis. In the end everybody behaves,
//! as the loops of the daemons do, and the cluster must come to rest with just the pods that are wanted.
//!
//! `KUBELEET_WALKS=<walks>` makes it walk longer than the few walks that every run of the tests takes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod heal;
mod walk;

use cluster::Cluster;

const STEPS: usize = 240;

fn walks() -> u64 {
    std::env::var("KUBELEET_WALKS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[tokio::test]
async fn walks_with_crashes_break_no_invariant_and_end_as_desired() {
    for seed in 1..=walks() {
        let mut cluster = Cluster::new(seed).await;
        for step in 0..STEPS {
            let did = walk::step(&mut cluster).await;
            let wrong = cluster.bed.violations().await;
            assert!(
                wrong.is_empty(),
                "seed {seed}, step {step}, after {did}: {wrong:#?}\n{}",
                cluster.story()
            );
        }
        heal::comes_to_rest(&mut cluster, seed).await;
    }
}

#[tokio::test]
async fn a_database_that_forgets_breaks_nothing_for_good() {
    for seed in 1001..1001 + walks() {
        let mut cluster = Cluster::new(seed).await;
        for _ in 0..3 {
            for _ in 0..STEPS / 6 {
                walk::step(&mut cluster).await;
            }
            let old = kubeleet_tests::Checkpoint::take(&cluster.bed.redis).await;
            for _ in 0..STEPS / 6 {
                walk::step(&mut cluster).await;
            }
            old.restore(&cluster.bed.redis).await;
            cluster.note("the database forgot");
        }
        heal::comes_to_rest(&mut cluster, seed).await;
    }
}
