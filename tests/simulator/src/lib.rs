//! Runs the production worker, scheduler and store under seeded schedules with faults.
//!
//! One seed is one run. A single thread owns the whole cluster:
//!
//! - Each process has its own tokio runtime ([`machine::process`]), which runs only while the simulator polls
//!   it.
//! - All requests wait on the [`machine::bus`]: Redis commands, intercepted at the store's `Transport`, and
//!   engine calls, intercepted at the worker's `Runtime`.
//! - A seeded generator picks the next request ([`world::execution`]), which runs on a real Redis, and
//!   injects faults ([`faults::injection`]).
//! - The monotonic clock and all randomness come from the simulator ([`machine::deterministic`]).
//!
//! After every step the invariants are checked ([`checks::invariants`]). In the end the faults stop, and the
//! cluster must converge to the acknowledged writes ([`workload::expected_state`]).
//!
//! Each run needs a fresh process: tokio seeds the branch order of `select!` from a counter of the process.
//!
//! Tests: schedules

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod background;
mod checks;
mod cron_run;
mod director;
mod faults;
mod machine;
mod options;
mod phases;
mod scenario;
mod stats;
mod workload;
mod world;

use std::fmt;

pub use background::runs_in_background;
use checks::invariants;
use director::Director;
use machine::deterministic;
pub use machine::scripts::LoadedScripts;
pub use options::{ScheduleOptions, Switches};
use phases::{CONVERGENCE_LIMIT, STEPS_PER_CONVERGENCE_CHECK};
pub use scenario::Scenario;
pub use stats::Stats;
use world::state::World;

/// In units of the silence after which a node is dead.
const FAULT_PHASE: (u64, u64) = (4, 16);
/// In the same unit.
const SCENARIO_PHASE: u64 = 12;
/// In the same unit, until an operator makes room on full nodes.
const ROOM_AFTER: u64 = 20;
/// In the same unit.
const CONVERGED_FOR: u64 = 2;
const SHOWN_STEPS: usize = 80;

#[derive(Debug)]
pub struct ScheduleFailure {
    pub seed: u64,
    pub scenario: Scenario,
    pub violations: Vec<String>,
    /// Empty unless the run was traced.
    pub trace: Vec<String>,
}

impl fmt::Display for ScheduleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, scenario, violations, trace } = self;
        writeln!(f, "seed {seed} failed:\n  {}", violations.join("\n  "))?;
        let last = &trace[trace.len().saturating_sub(SHOWN_STEPS)..];
        writeln!(f, "the last steps (milliseconds, process, what happened):\n{}", last.join("\n"))?;
        write!(
            f,
            "replay: SIMULATOR_SEED={seed} SIMULATOR_SCENARIO={scenario:?} \
             cargo test -p kubeleet-simulator --test schedules replay -- --nocapture"
        )
    }
}

/// The calling thread must be fresh and end afterwards: its clock and randomness are replaced.
pub fn simulate(options: &ScheduleOptions<'_>) -> Result<(Stats, Vec<String>), Box<ScheduleFailure>> {
    deterministic::make_deterministic(options.seed);
    let mut world = World::new(options);
    let result = match options.scenario {
        Scenario::Random
        | Scenario::HandOver
        | Scenario::Rules
        | Scenario::Waking
        | Scenario::Related
        | Scenario::Ordinals
        | Scenario::Global
        | Scenario::Drains
        | Scenario::Resources
        | Scenario::Preemption => run_with_random_faults(&mut world),
        Scenario::Jobs => cron_run::run(&mut world),
        scenario => run_scenario(&mut world, scenario),
    };
    match result {
        Ok(()) => Ok((world.stats, world.trace.into_steps())),
        Err(violations) => Err(Box::new(ScheduleFailure {
            seed: options.seed,
            scenario: options.scenario,
            violations,
            trace: world.trace.into_steps(),
        })),
    }
}

fn run_with_random_faults(world: &mut World) -> Result<(), Vec<String>> {
    let dead = world.timing.dead;
    let end = world.clock.now + world.random.between(FAULT_PHASE.0 * dead, FAULT_PHASE.1 * dead);
    while world.clock.now < end {
        world.step()?;
    }
    converge(world)
}

fn run_scenario(world: &mut World, scenario: Scenario) -> Result<(), Vec<String>> {
    world.faults.rate = 0;
    let mut director = Director::default();
    let end = world.clock.now + SCENARIO_PHASE * world.timing.dead;
    while world.clock.now < end {
        director.direct(scenario, world);
        world.step()?;
    }
    converge(world)
}

fn converge(world: &mut World) -> Result<(), Vec<String>> {
    world.stop_faults();
    let dead = world.timing.dead;
    let begin = world.clock.now;
    let mut converged_since = None;
    let mut steps = 0;
    while world.clock.now < begin + CONVERGENCE_LIMIT * dead {
        world.step()?;
        steps += 1;
        if steps % STEPS_PER_CONVERGENCE_CHECK != 0 {
            continue;
        }
        world.remove_containers_that_stay_held();
        world.give_up_lost_volumes();
        world.label_all_nodes();
        world.uncordon_all_nodes();
        if world.clock.now > begin + ROOM_AFTER * dead {
            world.make_room_for_volumes();
            world.remove_containers_of_another_cluster();
        }
        let has_converged = world.clients.lock().is_idle() && invariants::not_converged(world).is_empty();
        if !has_converged {
            converged_since = None;
        } else if world.clock.now > *converged_since.get_or_insert(world.clock.now) + CONVERGED_FOR * dead {
            world.stats.convergence_millis = world.clock.now - begin;
            world.reread_all();
            return world.take_violations();
        }
    }
    let mut violations = invariants::not_converged(world);
    violations.insert(0, format!("does not converge within {} s", CONVERGENCE_LIMIT * dead / 1000));
    Err(violations)
}
