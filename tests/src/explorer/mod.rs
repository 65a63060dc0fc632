//! The schedule explorer: the production worker, scheduler and store, driven through adversarial schedules.
//!
//! One seed is one schedule. A single thread owns everything: each process (workers, schedulers, an API with its users)
//! is production code on a tokio runtime of its own ([`process`]), which stands still unless it is driven. What it asks
//! of its surroundings waits on the [`bus`]: commands to Redis, behind the store's seam, and calls of its engine, behind
//! the worker's. A seeded generator picks what happens next, one thing at a time, on a real Redis with the real scripts;
//! and it strikes with faults: crashes of processes and hosts, pauses, suspended machines, partitions, replies that are
//! lost, commands that arrive late, wake-ups that come twice or never, engines that hang, failovers that lose the last
//! writes. Clock and randomness are the explorer's as well ([`tame`]): the same seed is the same run.
//!
//! After every step the invariants of the design are checked against all of Redis and all containers ([`checks`]); in
//! the end the faults stop, and everything has to come to rest as it was wished.
//!
//! A run needs a process of its own: some of what production code takes from its surroundings is the process'.

mod api;
mod bus;
mod checks;
mod commands;
mod failover;
mod faults;
mod happening;
mod host;
mod lives;
mod meaning;
mod plot;
mod process;
mod random;
mod redis;
mod scripts;
mod seat;
mod stats;
mod tame;
mod view;
mod who;
mod wishes;
mod world;

use std::fmt;
use std::path::Path;

pub use plot::Plot;
pub use stats::Stats;
use world::World;

use crate::Ablation;

/// With faults for so many milliseconds, at least and at most; by how long it takes to be declared dead.
const TROUBLE: (u64, u64) = (4, 16);
/// Then so many, at most, until everything rests.
const TO_REST: u64 = 60;
/// It has to rest for so many.
const AT_REST: u64 = 2;
/// A plot takes so many.
const PLOT: u64 = 12;
/// So many steps of a run that found something are shown; [`Failure`] has all.
const SHOWN: usize = 80;

/// What is taken out of the surroundings that processes rely on. All off: production.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// A worker that starts does not see what ran under a lease that has run out.
    pub no_startup_fence: bool,
    /// Leases last longer than it takes to be declared dead.
    pub fence_longer_than_dead: bool,
    /// Nobody sees payloads in rq that nobody works on.
    pub no_sweep: bool,
}

/// A run that found something.
#[derive(Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// Its plot.
    pub plot: Plot,
    /// What does not hold.
    pub wrong: Vec<String>,
    /// All steps.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, plot, wrong, trace } = self;
        writeln!(f, "seed {seed} found:\n  {}", wrong.join("\n  "))?;
        let last = &trace[trace.len().saturating_sub(SHOWN)..];
        writeln!(f, "the last steps (milliseconds, who, what):\n{}", last.join("\n"))?;
        write!(
            f,
            "again: EXPLORER_SEED={seed} EXPLORER_PLOT={plot:?} cargo test -p kubeleet-tests --test schedules replay -- --nocapture"
        )
    }
}

/// Runs one seed on the Redis behind this socket. Gives what happened, and with `traced` all steps. The thread is of no
/// use for anything else afterwards: it has lost its clock.
///
/// # Errors
/// When something does not hold.
pub fn explore(
    redis: &Path,
    seed: u64,
    plot: Plot,
    switches: Switches,
    ablation: Option<Ablation>,
    traced: bool,
) -> Result<(Stats, Vec<String>), Box<Failure>> {
    tame::tame(seed);
    let mut world = World::new(redis, seed, switches, ablation, traced);
    let found = match plot {
        Plot::Chance => play(&mut world),
        plot => act(&mut world, plot),
    };
    match found {
        Ok(()) => Ok((world.stats, world.trace())),
        Err(wrong) => Err(Box::new(Failure { seed, plot, wrong, trace: world.trace() })),
    }
}

fn play(world: &mut World) -> Result<(), Vec<String>> {
    let dead = world.times.dead;
    let until = world.now + world.random.between(TROUBLE.0 * dead, TROUBLE.1 * dead);
    while world.now < until {
        world.step()?;
    }
    come_to_rest(world)
}

/// No faults but those of the plot.
fn act(world: &mut World, plot: Plot) -> Result<(), Vec<String>> {
    world.fury = 0;
    let mut director = plot::Director::default();
    let until = world.now + PLOT * world.times.dead;
    while world.now < until {
        director.direct(plot, world);
        world.step()?;
    }
    come_to_rest(world)
}

/// No more faults and no more wishes: everything runs until nothing changes any more.
fn come_to_rest(world: &mut World) -> Result<(), Vec<String>> {
    world.settle();
    let dead = world.times.dead;
    let begun = world.now;
    let mut rests_since = None;
    let mut steps = 0;
    while world.now < begun + TO_REST * dead {
        world.step()?;
        steps += 1;
        if steps % 8 != 0 {
            continue;
        }
        let is_restless = !world.desk.lock().is_idle() || !checks::unrest(world).is_empty();
        if is_restless {
            rests_since = None;
        } else if world.now > *rests_since.get_or_insert(world.now) + AT_REST * dead {
            world.stats.to_rest = world.now - begun;
            world.look_at_all();
            return if world.wrong.is_empty() { Ok(()) } else { Err(std::mem::take(&mut world.wrong)) };
        }
    }
    let mut wrong = checks::unrest(world);
    wrong.insert(0, format!("does not come to rest within {} s", TO_REST * dead / 1000));
    Err(wrong)
}
