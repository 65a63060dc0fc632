//! The protocol explorer over many seeds, and the ablations it has to notice.
//!
//! `EXPLORER_SEEDS=n` sets how many seeds `explore` runs, `EXPLORER_FROM=n` the first; `EXPLORER_SEED=n … replay` runs
//! one and shows it (`EXPLORER_PLOT` as the failure said).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a search says what it found, a replay what it saw")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kubeleet_tests::Ablation;
use kubeleet_tests::explorer::{Failure, Ground, Plot, Stats, Switches, explore};

/// As many as take less than a minute on two cores.
const SEEDS: u64 = 150;
/// Of each plot.
const SEEDS_OF_PLOTS: u64 = 40;
/// An ablation has to be noticed within so many.
const SEEDS_TO_NOTICE: u64 = 120;
/// The machines this runs on have at least two cores.
const THREADS: usize = 2;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs seeds until one finds something; gives the first that did, or what happened in all of them.
fn search(
    first: u64,
    count: u64,
    switches: Switches,
    plot: Plot,
    ablation: Option<Ablation>,
) -> Result<Stats, Box<Failure>> {
    let next = AtomicU64::new(first);
    let outcome = Mutex::new((Stats::default(), None::<Box<Failure>>));
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ground = Ground::new(ablation).await;
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count || outcome.lock().unwrap().1.is_some() {
                    return;
                }
                let found = explore(&ground, seed, switches, plot).await;
                let mut outcome = outcome.lock().unwrap();
                match found {
                    Ok(stats) => outcome.0 += stats,
                    Err(failure) if outcome.1.as_ref().is_none_or(|other| failure.seed < other.seed) => {
                        outcome.1 = Some(failure);
                    }
                    Err(_) => {}
                }
            }
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    match outcome.into_inner().unwrap() {
        (_, Some(failure)) => Err(failure),
        (stats, None) => Ok(stats),
    }
}

fn must_hold(plot: Plot, count: u64) {
    let begun = Instant::now();
    match search(setting("EXPLORER_FROM").unwrap_or(0), count, Switches::default(), plot, None) {
        Ok(stats) => println!("{count} seeds in {:?}: {stats:?}", begun.elapsed()),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn no_schedule_breaks_an_invariant() {
    must_hold(Plot::Chance, setting("EXPLORER_SEEDS").unwrap_or(SEEDS));
}

#[test]
fn a_stale_renewal_keeps_no_lease() {
    must_hold(Plot::StaleRenewal, SEEDS_OF_PLOTS);
}

#[test]
fn a_lease_that_is_out_is_not_revived() {
    must_hold(Plot::Revival, SEEDS_OF_PLOTS);
}

#[test]
fn replay() {
    let Some(seed) = setting("EXPLORER_SEED") else { return };
    let plot = match std::env::var("EXPLORER_PLOT").as_deref() {
        Ok("StaleRenewal") => Plot::StaleRenewal,
        Ok("Revival") => Plot::Revival,
        _ => Plot::Chance,
    };
    match search(seed, 1, Switches::default(), plot, None) {
        Ok(stats) => println!("seed {seed} finds nothing: {stats:?}"),
        Err(failure) => {
            println!("{}", failure.trace.join("\n"));
            panic!("{failure}");
        }
    }
}

/// What is taken out, as a test that something is found, and that it is what is expected.
fn must_find(expected: &str, switches: Switches, plot: Plot, ablation: Option<Ablation>) {
    match search(0, SEEDS_TO_NOTICE, switches, plot, ablation) {
        Ok(stats) => panic!("{SEEDS_TO_NOTICE} seeds did not notice: {stats:?}"),
        Err(failure) => {
            println!("seed {} noticed: {}", failure.seed, failure.wrong.join("\n  "));
            assert!(failure.wrong.iter().any(|wrong| wrong.contains(expected)), "something else:\n{failure}");
        }
    }
}

macro_rules! actor_ablations {
    ($($name:ident: $($switch:ident),* in $plot:ident => $expected:literal;)*) => {$(
        #[test]
        fn $name() {
            must_find($expected, Switches { $($switch: true,)* ..Switches::default() }, Plot::$plot, None);
        }
    )*};
}

actor_ablations! {
    without_the_startup_fence: no_startup_fence, lease_before_verification in Chance => "invariant 5";
    with_a_fence_after_death: fence_longer_than_dead in Chance => "invariant 5";
    without_the_sweep: no_sweep in Chance => "does not come to rest";
    without_the_pause_after_a_failover: no_pause in Chance => "invariant 5";
    with_a_lease_before_verification: lease_before_verification in StaleRenewal => "invariant 5";
    with_a_lease_that_is_revived: revive_lease in Revival => "invariant 5";
}

macro_rules! script_ablations {
    ($($name:ident: $file:literal, $from:literal => $to:literal, $expected:literal;)*) => {$(
        #[test]
        fn $name() {
            let ablation = Ablation { file: $file, from: $from, to: $to };
            must_find($expected, Switches::default(), Plot::Chance, Some(ablation));
        }
    )*};
}

script_ablations! {
    with_writes_of_fenced_workers: "_prelude",
        "return node[1] ~= incarnation or node[2] ~= 'alive'" => "return false", "invariant 3";
    with_a_reject_of_all_copies: "reject", "redis.call('LREM', KEYS[3], -1, payload)" => "redis.call('LREM', KEYS[3], 0, payload)",
        "invariant 7";
    with_a_drain_of_all_copies: "drain", "redis.call('LREM', KEYS[5], -1, payload)" => "redis.call('LREM', KEYS[5], 0, payload)",
        "invariant 7";
    with_slots_taken_twice: "pods_create",
        "redis.call('HSETNX', KEYS[4], replica, uuid) == 1" => "redis.call('HSET', KEYS[4], replica, uuid)", "nothing wants it";
    with_an_ack_that_leaves_rq: "ack", "redis.call('LREM', KEYS[4], -1, payload)" => "", "invariant 2";
    with_an_assignment_without_room: "assign", "node.free_pods < 1" => "false", "invariant 9";
    with_a_wish_to_stop_that_outlives_its_pod: "drain", "redis.call('SREM', KEYS[6], uuid)" => "", "does not come to rest";
    with_a_copy_that_ends_a_running_pod: "claim", "(phase == 'stopping' and runs(payload))" => "false", "does not come to rest";
    with_an_incomplete_search: "pod_requeue", "if not asked[scheduler] then return 'CHANGED' end" => "", "invariant 2";
}
