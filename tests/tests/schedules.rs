//! The schedule explorer over many seeds, and the ablations it has to notice.
//!
//! `EXPLORER_SEEDS=n` sets how many seeds `no_schedule_breaks_an_invariant` runs, `EXPLORER_FROM=n` the first;
//! `EXPLORER_SEED=n … replay` runs one and shows it (`EXPLORER_PLOT` as the failure said).
//!
//! Each run is a process: this program again, told by `EXPLORER_RUN` to be one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a search says what it found, a replay what it saw")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kubeleet_tests::explorer::{Plot, Stats, Switches, explore};
use kubeleet_tests::{Ablation, Redis};
use serde::{Deserialize, Serialize};

/// What the next run is, as JSON.
const RUN: &str = "EXPLORER_RUN";
/// What it says of itself begins so.
const SAYS: &str = "explored: ";
const SEEDS: u64 = 600;
/// Of each plot.
const SEEDS_OF_PLOTS: u64 = 25;
/// An ablation has to be noticed within so many.
const SEEDS_TO_NOTICE: u64 = 300;
/// In its folder.
const SOCKET: &str = "socket";
/// The machines this runs on have at least two cores.
const THREADS: usize = 2;

#[derive(Clone, Serialize, Deserialize)]
struct Run {
    redis: PathBuf,
    seed: u64,
    plot: String,
    ablation: String,
    traced: bool,
}

#[derive(Serialize, Deserialize)]
enum Said {
    Nothing(Stats, Vec<String>),
    Found { wrong: Vec<String>, words: String, trace: Vec<String> },
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn plot_of(name: &str) -> Plot {
    Plot::ALL.into_iter().find(|plot| format!("{plot:?}") == name).unwrap_or_default()
}

/// One run, where this process was begun for one.
#[test]
fn one_run() {
    let Ok(run) = std::env::var(RUN) else { return };
    let Run { redis, seed, plot, ablation, traced } = serde_json::from_str(&run).unwrap();
    let (switches, ablation) = taken_out(&ablation);
    // A thread that has had no randomness yet.
    let done = std::thread::spawn(move || explore(&redis, seed, plot_of(&plot), switches, ablation, traced));
    let said = match done.join().unwrap() {
        Ok((stats, trace)) => Said::Nothing(stats, trace),
        Err(failure) => {
            let words = failure.to_string();
            Said::Found { wrong: failure.wrong, words, trace: failure.trace }
        }
    };
    println!("\n{SAYS}{}", serde_json::to_string(&said).unwrap());
}

fn run(run: &Run) -> Said {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "one_run", "--nocapture", "--test-threads=1"]);
    let output = command.env(RUN, serde_json::to_string(run).unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix(SAYS)) {
        Some(said) => serde_json::from_str(said).unwrap(),
        None => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Said::Found {
                wrong: vec![format!("seed {}: {errors}", run.seed)],
                words: format!("seed {} ended without a word:\n{errors}", run.seed),
                trace: Vec::new(),
            }
        }
    }
}

/// Runs seeds until one finds something; gives the first that did, or what happened in all of them.
fn search(first: u64, count: u64, plot: Plot, ablation: &str) -> Result<Stats, (u64, Vec<String>, String)> {
    let next = AtomicU64::new(first);
    let outcome = Mutex::new((Stats::default(), None::<(u64, Vec<String>, String)>));
    let work = || {
        let redis = start_redis();
        let (plot, ablation) = (format!("{plot:?}"), ablation.to_owned());
        let mut one = Run { redis: socket(&redis), seed: 0, plot, ablation, traced: false };
        loop {
            one.seed = next.fetch_add(1, Ordering::Relaxed);
            if one.seed >= first + count || outcome.lock().unwrap().1.is_some() {
                return;
            }
            let mut said = run(&one);
            if let Said::Found { .. } = said {
                said = run(&Run { traced: true, ..one.clone() });
            }
            let mut outcome = outcome.lock().unwrap();
            match said {
                Said::Nothing(stats, _) => outcome.0 += stats,
                Said::Found { wrong, words, .. }
                    if outcome.1.as_ref().is_none_or(|other| one.seed < other.0) =>
                {
                    outcome.1 = Some((one.seed, wrong, words));
                }
                Said::Found { .. } => {}
            }
        }
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

fn start_redis() -> Redis {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Redis::start_with(&["--save", "", "--appendonly", "no", "--unixsocket", SOCKET]))
}

fn socket(redis: &Redis) -> PathBuf {
    redis.folder().join(SOCKET)
}

fn must_hold(plot: Plot, count: u64) {
    let begun = Instant::now();
    match search(setting("EXPLORER_FROM").unwrap_or(0), count, plot, "") {
        Ok(stats) => println!("{count} seeds in {:?}: {stats:?}", begun.elapsed()),
        Err((_, _, words)) => panic!("{words}"),
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
fn a_start_that_was_under_way_when_the_lease_ran_out_is_waited_for() {
    must_hold(Plot::LateStart, SEEDS_OF_PLOTS);
}

#[test]
fn a_pod_that_is_reported_lost_while_it_is_started_again_runs_once() {
    must_hold(Plot::LateReport, SEEDS_OF_PLOTS);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let (one, other) = (start_redis(), start_redis());
    for seed in 0..setting("EXPLORER_TWICE").unwrap_or(10) {
        let twice = [&one, &other].map(|redis| {
            let (redis, plot) = (socket(redis), String::new());
            match run(&Run { redis, seed, plot, ablation: String::new(), traced: true }) {
                Said::Nothing(_, trace) | Said::Found { trace, .. } => trace,
            }
        });
        let [first, second] = &twice;
        let differs = first.iter().zip(second).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let near = at.saturating_sub(10)..at + 1;
            panic!(
                "seed {seed}, step {at}:\n{}\n----\n{}",
                first[near.clone()].join("\n"),
                second[near].join("\n")
            );
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn replay() {
    let Some(seed) = setting("EXPLORER_SEED") else { return };
    let redis = start_redis();
    let plot = std::env::var("EXPLORER_PLOT").unwrap_or_default();
    let ablation = std::env::var("EXPLORER_ABLATION").unwrap_or_default();
    match run(&Run { redis: socket(&redis), seed, plot, ablation, traced: true }) {
        Said::Nothing(stats, trace) => {
            println!("{}", trace.join("\n"));
            println!("seed {seed} finds nothing: {stats:?}");
        }
        Said::Found { words, trace, .. } => {
            println!("{}", trace.join("\n"));
            panic!("{words}");
        }
    }
}

/// What is taken out, as a test that something is found, and that it is what is expected.
fn must_find(name: &str, plot: Plot, expected: &str) {
    match search(0, SEEDS_TO_NOTICE, plot, name) {
        Ok(stats) => panic!("{SEEDS_TO_NOTICE} seeds did not notice: {stats:?}"),
        Err((seed, wrong, words)) => {
            println!("seed {seed} noticed: {}", wrong.join("\n  "));
            assert!(wrong.iter().any(|wrong| wrong.contains(expected)), "something else:\n{words}");
        }
    }
}

macro_rules! ablations {
    (switches { $($switched:ident: $switch:ident => $sign:literal;)* }
     scripts { $($name:ident: $file:literal, $from:literal => $to:literal, $expected:literal;)* }) => {
        /// By the name of its test.
        fn taken_out(name: &str) -> (Switches, Option<Ablation>) {
            let none = Switches::default();
            match name {
                $(stringify!($switched) => (Switches { $switch: true, ..none }, None),)*
                $(stringify!($name) => (none, Some(Ablation { file: $file, from: $from, to: $to })),)*
                _ => (none, None),
            }
        }

        $(#[test]
        fn $switched() {
            must_find(stringify!($switched), Plot::Chance, $sign);
        })*
        $(#[test]
        fn $name() {
            must_find(stringify!($name), Plot::Chance, $expected);
        })*
    };
}

ablations! {
    switches {
    without_the_startup_fence: no_startup_fence => "invariant 5";
    with_a_fence_after_death: fence_longer_than_dead => "invariant 5";
    without_the_sweep: no_sweep => "does not come to rest";
    }
    scripts {
    without_the_pause_after_a_failover: "_prelude", "local left = master_changed_at() + pause - NOW" => "local left = 0", "invariant 5";
    with_writes_of_fenced_workers: "_prelude",
        "return node[1] ~= incarnation or node[2] ~= 'alive'" => "return false", "invariant 3";
    with_a_reject_of_all_copies: "reject", "redis.call('LREM', KEYS[3], -1, payload)" => "redis.call('LREM', KEYS[3], 0, payload)",
        "invariant 7";
    with_a_drain_of_all_copies: "drain", "redis.call('LREM', KEYS[5], -1, payload)" => "redis.call('LREM', KEYS[5], 0, payload)",
        "invariant 7";
    with_slots_taken_twice: "pods_create",
        "not holders[i - 5] and not taken[replica]" => "true", "nothing wants it";
    with_an_ack_that_leaves_rq: "ack", "take_out(run)" => "", "invariant 2";
    with_an_assignment_that_sets_nothing_aside: "assign",
        "redis.call('HINCRBY', node_key, 'used_cpu', node.cpu)" => "", "invariant 9";
    with_a_wish_to_stop_that_outlives_its_pod: "drain", "redis.call('SREM', KEYS[6], uuid)" => "", "does not come to rest";
    with_nothing_ever_put_back: "pod_requeue", "if phase ~= seen_phase or node ~= seen_node then" => "do",
        "does not come to rest";
    with_a_copy_that_ends_a_running_pod: "claim", "(phase == 'stopping' and runs(payload))" => "false", "does not come to rest";
    }
}
