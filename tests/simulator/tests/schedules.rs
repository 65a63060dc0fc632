//! Runs the schedule simulator over many seeds, and checks that it finds each ablation.
//!
//! - `SIMULATOR_SEEDS=n`: seeds of `no_schedule_breaks_an_invariant`; `SIMULATOR_FROM=n`: the first of them.
//! - `SIMULATOR_SEED=n … replay`: runs one seed and prints every step. `SIMULATOR_SCENARIO` is as the failure
//!   printed it; `SIMULATOR_ABLATION` is the name of an ablation's test.
//! - `SIMULATOR_TWICE=n`: seeds of `the_same_seed_is_the_same_run`.
//!
//! Each run is a process of this program, with its options in `SIMULATOR_RUN`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a search prints its result, a replay its steps")]

use std::fs::OpenOptions;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kubeleet_simulator::{
    LoadedScripts, Scenario, ScheduleOptions, Stats, Switches, runs_in_background, simulate,
};
use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use testkit::{Ablation, Redis};

/// A [`Run`] as JSON.
const RUN: &str = "SIMULATOR_RUN";
const OUTCOME_PREFIX: &str = "outcome of the run: ";
const SEEDS: u64 = 600;
const SEEDS_PER_SCENARIO: u64 = 25;
const SEEDS_PER_ABLATION: u64 = 300;
const SOCKET: &str = "socket";

#[derive(Clone, Serialize, Deserialize)]
struct Run {
    redis: PathBuf,
    scripts: LoadedScripts,
    seed: u64,
    scenario: String,
    ablation: String,
    is_traced: bool,
}

#[derive(Serialize, Deserialize)]
enum Outcome {
    Passed { stats: Box<Stats>, trace: Vec<String> },
    Failed { violations: Vec<String>, report: String, trace: Vec<String> },
}

struct Finding {
    seed: u64,
    violations: Vec<String>,
    report: String,
}

fn number_setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn scenario_named(name: &str) -> Scenario {
    if name.is_empty() {
        return Scenario::Random;
    }
    let named = Scenario::ALL.into_iter().find(|scenario| format!("{scenario:?}") == name);
    named.unwrap_or_else(|| panic!("there is no scenario {name}: {:?}", Scenario::ALL))
}

#[test]
fn one_run() {
    let Ok(run) = std::env::var(RUN) else { return };
    let run: Run = serde_json::from_str(&run).unwrap();
    let outcome = std::thread::spawn(move || execute(&run)).join().unwrap();
    println!("\n{OUTCOME_PREFIX}{}", serde_json::to_string(&outcome).unwrap());
}

impl Outcome {
    fn result(&self) -> String {
        match self {
            Self::Passed { stats, .. } => format!("{stats:?}"),
            Self::Failed { violations, .. } => violations.join(", "),
        }
    }

    fn or_with_trace(self, run: &Run) -> Self {
        let Self::Failed { violations, report, .. } = &self else { return self };
        match run_in_process(&Run { is_traced: true, ..run.clone() }) {
            Self::Failed { violations: again, report, trace } if again == *violations => {
                Self::Failed { violations: again, report, trace }
            }
            // Rather a violation without its steps than none.
            _ => {
                let report = format!(
                    "{report}\nWith a trace it is another run: something in the simulator is random."
                );
                Self::Failed { violations: violations.clone(), report, trace: Vec::new() }
            }
        }
    }
}

impl Run {
    fn on(redis: &Redis, scenario: &str, ablation: &str) -> Self {
        let redis = redis.folder().join(SOCKET);
        let scripts = LoadedScripts::load(&redis, ablation_named(ablation).1);
        let (scenario, ablation) = (scenario.to_owned(), ablation.to_owned());
        Self { redis, scripts, seed: 0, scenario, ablation, is_traced: false }
    }
}

fn execute(run: &Run) -> Outcome {
    let options = ScheduleOptions {
        redis: &run.redis,
        scripts: &run.scripts,
        seed: run.seed,
        scenario: scenario_named(&run.scenario),
        switches: ablation_named(&run.ablation).0,
        is_traced: run.is_traced,
    };
    match simulate(&options) {
        Ok((stats, trace)) => Outcome::Passed { stats: Box::new(stats), trace },
        Err(failure) => {
            let report = failure.to_string();
            Outcome::Failed { violations: failure.violations, report, trace: failure.trace }
        }
    }
}

fn run_in_process(run: &Run) -> Outcome {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "one_run", "--nocapture", "--test-threads=1"]);
    let output = command.env(RUN, serde_json::to_string(run).unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix(OUTCOME_PREFIX)) {
        Some(outcome) => serde_json::from_str(outcome).unwrap(),
        None => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Outcome::Failed {
                violations: vec![format!("seed {}: {errors}", run.seed)],
                report: format!("the process of seed {} ended without an outcome:\n{errors}", run.seed),
                trace: Vec::new(),
            }
        }
    }
}

/// Returns the lowest failed seed.
fn search(first: u64, count: u64, scenario: Scenario, ablation: &str) -> Result<Stats, Finding> {
    let next = AtomicU64::new(first);
    let result = Mutex::new((Stats::default(), None::<Finding>));
    let work = |thread| {
        pin_to_cpu(thread);
        let redis = start_redis();
        let mut run = Run::on(&redis, &format!("{scenario:?}"), ablation);
        loop {
            run.seed = next.fetch_add(1, Ordering::Relaxed);
            if run.seed >= first + count || result.lock().1.is_some() {
                return;
            }
            let outcome = run_in_process(&run).or_with_trace(&run);
            let (stats, finding) = &mut *result.lock();
            match outcome {
                Outcome::Passed { stats: more, .. } => *stats += *more,
                Outcome::Failed { violations, report, .. } => {
                    if finding.as_ref().is_none_or(|other| run.seed < other.seed) {
                        *finding = Some(Finding { seed: run.seed, violations, report });
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..parallelism().min(count as usize) {
            scope.spawn(move || work(thread));
        }
    });
    match result.into_inner() {
        (_, Some(finding)) => Err(finding),
        (stats, None) => Ok(stats),
    }
}

fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The thread, its Redis and its runs take turns of some 50 µs. Waking up another CPU takes longer than the
/// turn: pinned, a run takes little more than half the time.
fn pin_to_cpu(index: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let first = std::process::id() as usize;
    let mut pinned = CpuSet::new();
    pinned.set(cpus[(first + index) % cpus.len()]);
    let _result = sched_setaffinity(None, &pinned);
}

fn start_redis() -> Redis {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Redis::start_with(&["--save", "", "--appendonly", "no", "--unixsocket", SOCKET]))
}

fn must_hold(test: &str, scenario: Scenario, count: u64) {
    if !runs_in_background(test) {
        return;
    }
    let begin = Instant::now();
    match search(number_setting("SIMULATOR_FROM").unwrap_or(0), count, scenario, "") {
        Ok(stats) => println!("{count} seeds in {:?}: {stats:?}", begin.elapsed()),
        Err(finding) => panic!("{}", finding.report),
    }
}

/// Test, scenario, and number of seeds that must hold.
macro_rules! scenarios {
    ($($name:ident: $scenario:ident, $count:expr;)*) => {
        $(#[test]
        fn $name() {
            must_hold(stringify!($name), Scenario::$scenario, $count);
        })*
    };
}

scenarios! {
    no_schedule_breaks_an_invariant: Random, number_setting("SIMULATOR_SEEDS").unwrap_or(SEEDS);
    a_stale_renewal_does_not_keep_a_lease: StaleRenewal, SEEDS_PER_SCENARIO;
    an_expired_lease_is_not_revived: LeaseRevival, SEEDS_PER_SCENARIO;
    a_start_in_progress_when_the_lease_expires_is_waited_for: LateStart, SEEDS_PER_SCENARIO;
    a_pod_that_is_reported_lost_during_a_restart_runs_once: LateReport, SEEDS_PER_SCENARIO;
    no_node_dies_because_of_an_outage_of_writes_or_right_after_a_mass_loss: Outage, SEEDS_PER_SCENARIO;
    a_broken_update_is_rolled_back_whichever_scheduler_dies: BrokenUpdate, SEEDS_PER_SCENARIO;
    an_update_that_starts_first_keeps_what_was_promised: StartFirst, 3 * SEEDS_PER_SCENARIO;
    a_pod_is_ready_once_its_check_has_passed_and_unhealthy_when_it_says_so: Health, 2 * SEEDS_PER_SCENARIO;
    no_request_is_cut_short_and_none_let_in_by_a_closed_gate:
        HandOver, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    a_pod_with_rules_is_assigned_only_where_they_hold:
        Rules, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    a_pod_that_fits_by_now_runs_although_no_hint_arrives:
        Waking, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    services_that_keep_away_from_each_other_are_never_assigned_to_one_node:
        Related, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    each_eligible_node_has_one_pod_of_a_global_service:
        Global, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    a_drained_node_hands_its_pods_over_and_none_is_lost:
        Drains, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    an_id_of_a_named_resource_belongs_to_one_pod_of_its_node:
        Resources, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    room_that_is_kept_for_a_pod_of_a_higher_priority_is_given_to_no_other:
        Preemption, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    ordinals_start_in_order_and_are_in_one_place:
        Ordinals, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
    an_old_copy_of_a_volume_does_not_take_the_place_of_a_younger_one: OldCopy, SEEDS_PER_SCENARIO;
    each_tick_is_taken_once_and_each_index_counts_once:
        Jobs, number_setting("SIMULATOR_SEEDS").unwrap_or(2 * SEEDS_PER_SCENARIO);
}

/// The two runs have a Redis each, and heartbeats answer its run id.
fn without_run_id(line: &str) -> String {
    let is_run_id = |word: &str| {
        let word = word.trim_matches(['[', ']']);
        word.len() == 24 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // Of a stream: its server's clock is not the simulated one.
    let is_entry = |word: &str| {
        let parts = word.split_once('-');
        parts.is_some_and(|(time, count)| [time, count].iter().all(|part| part.parse::<u64>().is_ok()))
    };
    let masked = |word: &'_ str| match word {
        word if is_run_id(word) => "<run id>".to_owned(),
        word if is_entry(word) => "<entry>".to_owned(),
        word => word.to_owned(),
    };
    line.split(' ').map(masked).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_same_seed_is_the_same_run() {
    if !runs_in_background("the_same_seed_is_the_same_run") {
        return;
    }
    pin_to_cpu(0);
    let (one, other) = (start_redis(), start_redis());
    let runs = [&one, &other].map(|redis| Run { is_traced: true, ..Run::on(redis, "", "") });
    for seed in 0..number_setting("SIMULATOR_TWICE").unwrap_or(10) {
        let outcomes = runs.clone().map(|run| run_in_process(&Run { seed, ..run }));
        let untraced = run_in_process(&Run { seed, is_traced: false, ..runs[0].clone() });
        let (result, other) = (outcomes[0].result(), untraced.result());
        assert_eq!(result, other, "seed {seed} is another run when it is not traced");
        let [first, second] = outcomes.map(|outcome| match outcome {
            Outcome::Passed { trace, .. } | Outcome::Failed { trace, .. } => {
                trace.into_iter().map(|line| without_run_id(&line)).collect::<Vec<_>>()
            }
        });
        let difference = first.iter().zip(&second).position(|(a, b)| a != b);
        if let Some(at) = difference {
            let context = at.saturating_sub(10)..at + 1;
            panic!(
                "seed {seed} differs at step {at}:\n{}\n----\n{}",
                first[context.clone()].join("\n"),
                second[context].join("\n")
            );
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn replay() {
    let Some(seed) = number_setting("SIMULATOR_SEED") else { return };
    let redis = start_redis();
    let scenario = std::env::var("SIMULATOR_SCENARIO").unwrap_or_default();
    let ablation = std::env::var("SIMULATOR_ABLATION").unwrap_or_default();
    match run_in_process(&Run { seed, is_traced: true, ..Run::on(&redis, &scenario, &ablation) }) {
        Outcome::Passed { stats, trace } => {
            println!("{}", trace.join("\n"));
            println!("seed {seed} finds nothing: {stats:?}");
        }
        Outcome::Failed { report, trace, .. } => {
            println!("{}", trace.join("\n"));
            panic!("{report}");
        }
    }
}

/// `known_seed` is the last one that found it.
fn must_find(name: &str, scenario: Scenario, known_seed: u64, expected: &str) {
    if !runs_in_background(name) {
        return;
    }
    let is_expected = |finding: &Finding| finding.violations.iter().any(|text| text.contains(expected));
    match search(known_seed, 1, scenario, name) {
        Err(finding) if is_expected(&finding) => {
            return println!("seed {known_seed} found it: {}", finding.violations.join("\n  "));
        }
        _ => println!("seed {known_seed} does not find it any more; searching from seed 0"),
    }
    match search(0, SEEDS_PER_ABLATION, scenario, name) {
        Ok(stats) => panic!("{SEEDS_PER_ABLATION} seeds did not find it: {stats:?}"),
        Err(finding) => {
            let seed = finding.seed;
            println!("seed {seed} found it: {}", finding.violations.join("\n  "));
            note_stale_seed(&format!(
                "write the seed down: {name}, seed {seed}, in tests/simulator/tests/schedules.rs"
            ));
            assert!(
                is_expected(&finding),
                "expected {expected:?}, found something else:\n{}",
                finding.report
            );
        }
    }
}

/// A passing test's output is hidden, and a stale seed costs a minute of each run.
fn note_stale_seed(line: &str) {
    println!("{line}");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stale-seeds");
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{line}").unwrap();
}

/// Test, last seed that found it, disabled safeguard, and expected violation.
macro_rules! ablations {
    (switches {
         $($switched:ident, seed $switch_seed:literal of $switch_scenario:ident: $switch:ident => $sign:literal;)*
     }
     $($scenario:ident { $($name:ident, seed $seed:literal:
         $file:literal, $from:literal => $to:literal, $expected:literal;)* })*) => {
        fn ablation_named(name: &str) -> (Switches, Option<Ablation>) {
            let none = Switches::default();
            match name {
                "" => (none, None),
                $(stringify!($switched) => (Switches { $switch: true, ..none }, None),)*
                $($(stringify!($name) => (none, Some(Ablation { file: $file, from: $from, to: $to })),)*)*
                _ => panic!("there is no ablation {name}"),
            }
        }

        $(#[test]
        fn $switched() {
            must_find(stringify!($switched), Scenario::$switch_scenario, $switch_seed, $sign);
        })*
        $($(#[test]
        fn $name() {
            must_find(stringify!($name), Scenario::$scenario, $seed, $expected);
        })*)*
    };
}

ablations! {
    switches {
    without_the_startup_fence, seed 4 of LeaseRevival: no_startup_fence => "invariant 5";
    with_a_fence_after_death, seed 8 of Random: fence_longer_than_dead => "invariant 5";
    without_the_sweep, seed 4 of Random: no_sweep => "does not converge";
    with_stops_that_wait_for_no_gate, seed 3 of HandOver: no_wait_for_gates => "requests in flight";
    with_workers_that_do_not_see_who_has_an_id, seed 11 of Resources: hidden_ids => "share an id";
    with_ordinals_that_start_at_once, seed 0 of Ordinals: start_at_once => "ordinals: ";
    with_global_pods_placed_anywhere, seed 1 of Global: global_anywhere => "global: ";
    with_gates_that_do_not_look, seed 1 of HandOver: open_gates => "is let in after its SIGTERM";
    }
    Random {
    without_the_pause_after_a_failover, seed 152:
        "_prelude", "local left = changed_at + pause_ms - NOW" => "local left = 0",
        "invariant 5";
    with_writes_of_fenced_workers, seed 10:
        "_prelude", "return node[1] ~= incarnation or node[2] ~= 'alive'" => "return false",
        "invariant 3";
    with_a_register_that_takes_workers_of_any_cluster, seed 8:
        "register", "if known_cluster ~= '' and cluster ~= known_cluster then" => "if false then",
        "unexpected container";
    with_a_reject_of_all_copies, seed 15:
        "reject", "redis.call('LREM', source, -1, payload)" => "redis.call('LREM', source, 0, payload)",
        "invariant 7";
    with_slots_taken_twice, seed 1:
        "pods_create", "not holders[p] and not taken[replica]" => "true",
        "nothing wants it";
    with_void_slots_that_stay, seed 0:
        "slot_free", "(is_void or not is_there)" => "not is_there",
        "does not converge";
    with_kept_pods_of_an_old_generation, seed 9:
        "pods_keep", "ipairs(outdated)" => "ipairs({})",
        "of an old generation";
    with_an_ack_that_leaves_rq, seed 0:
        "ack", "remove_from_rq(acked)" => "",
        "invariant 2";
    with_an_assignment_that_reserves_nothing, seed 0:
        "assign", "reserve(node_key, #node.queue, node.reserved)" => "reserve(node_key, #node.queue, {})",
        "invariant 9";
    with_a_stop_order_that_outlives_its_pod, seed 122:
        "drain",
        "end_stopped(node_key, stop_set, pod_key" => "end_stopped(node_key, 'no-such-set', pod_key",
        "does not converge";
    with_a_name_that_the_newcomer_takes, seed 0:
        "register", "holder ~= holder_of(incarnation)" => "false",
        "takes the name of a worker";
    without_any_requeue, seed 0:
        "pod_requeue", "if phase ~= seen_phase or node ~= seen_node then" => "do",
        "does not converge";
    with_a_drain_that_forgets_endpoints, seed 1:
        "drain", "endpoint(ep_key, pod_key, uuid)" => "",
        "its records say";
    with_a_copy_that_ends_a_running_pod, seed 5:
        "claim", "redis.call('SADD', cs, payload)" => "redis.call('HSET', pod_key, 'phase', 'stopped')",
        "invariant 9";
    with_a_stopping_pod_in_no_list, seed 5:
        "claim", "redis.call('SADD', cs, payload)" => "",
        "invariant 2";
    }
    Rules {
    with_an_assignment_to_a_relabelled_node, seed 3:
        "assign", "seen_labels ~= '' and" => "false and",
        "which lacks the label";
    with_an_assignment_beside_one_that_was_not_counted, seed 79:
        "assign", "is_outdated = (mark or '') ~= seen_mark" => "is_outdated = false",
        "rules: ";
    }
    Waking {
    with_neither_looks_nor_a_resync, seed 0:
        "unpark", "local function first_of(class)" => "local function first_of(class)\n  do return end",
        "does not converge";
    }
    Drains {
    with_an_uncordoned_node_that_is_drained_further, seed 3:
        "cordon", "redis.call('HDEL', node_key, 'drain', 'drain_said')" => "0",
        "does not converge";
    }
    Resources {
    with_an_assignment_of_ids_that_others_have, seed 0:
        "assign", "if not holders[f] then" => "do",
        "resources: ";
    with_a_release_that_keeps_ids, seed 0:
        "_prelude", "if ids then each_id(ids, release_field) end" => "",
        "resources: ";
    }
    Preemption {
    with_a_preemption_that_keeps_no_room, seed 12:
        "assign", "found.nominee, found.kept = read_nomination(nominated)" => "",
        "was assigned more than its capacity";
    }
    Outage {
    with_a_death_by_a_scheduler_that_could_not_write, seed 20:
        "declare_dead", ", tonumber(writable_ms), tonumber(calm_ms)" => "",
        "after Redis refused its write";
    with_no_reset_after_a_mass_loss, seed 7:
        "declare_dead", ", tonumber(calm_ms)" => "",
        "after a mass loss";
    }
    BrokenUpdate {
    without_a_history, seed 0:
        "_prelude", "if current_text then" => "if false then",
        "does not converge";
    }
    StartFirst {
    with_second_slots_that_inherit_nothing, seed 0:
        "_prelude", "if not successor then return redis.call('HDEL', slots, replica) == 1 end"
            => "do return redis.call('HDEL', slots, replica) == 1 end",
        "does not converge";
    }
    Health {
    with_pods_that_are_ready_when_they_run, seed 0:
        "ack", "if starting ~= '' then" => "if false then",
        "its check has never passed";
    with_stops_of_pods_that_are_ready_by_now, seed 53:
        "pods_stop", "(is_ready and spares_ready == '1')" => "false",
        "no other one of replica";
    }
    HandOver {
    with_addresses_told_before_they_are_confirmed, seed 5:
        "address", "return { 'OK', number, '' }" => "return { 'OK', number, '1' }",
        "is told as that of";
    with_addresses_given_again_at_once, seed 1:
        "address", "return not since or NOW - past(since) >= ADDRESS_QUARANTINE_MS" => "return true",
        "is told as that of";
    }
    OldCopy {
    with_a_volume_of_the_first_reporter, seed 1:
        "volumes_report", "#unreported_nodes(reports) == 0 and pause_left(tonumber(settle_after_ms)) == 0" => "true",
        "has its data on the machine";
    }
    Jobs {
    with_ticks_taken_whatever_was_taken_before, seed 3:
        "cron_tick", "or (current_ticks or '') ~= seen_ticks then" => "then",
        "tick";
    with_ends_that_are_not_counted, seed 0:
        "finish", "count_completion(service_key, done, tries, service, replica, pod_key)" => "",
        "is not counted";
    }
}
