//! The protocol explorer: the real verbs and scripts on a real Redis, driven through adversarial schedules.
//!
//! One seed is one schedule. A single thread owns all actors (client and API, schedulers, workers) as explicit state
//! machines; a seeded generator picks who makes its next single call and which fault strikes: crashes of processes and
//! hosts, pauses, partitions, lost replies, hints that come late or twice, failovers that lose the last writes. Time is
//! the model's, an integer. After every step the invariants of the design are checked against all of Redis and all
//! containers ([`checks`]); in the end the faults stop, and everything has to come to rest as it was wished.
//!
//! The workers and schedulers are models of the production ones, call by call; what they call is the production store.
//! [`Switches`] takes out what the protocol rests upon: the explorer has to notice.

mod checks;
mod client;
mod engine;
mod failover;
mod faults;
mod ground;
mod names;
mod plot;
mod random;
mod scheduler;
mod stats;
mod view;
mod who;
mod wishes;
mod worker;
mod world;

use std::fmt;

use client::Client;
pub use ground::Ground;
pub use plot::Plot;
use scheduler::Scheduler;
pub use stats::Stats;
use who::{ACTORS, SCHEDULERS, WORKERS, Who};
use worker::Worker;
use world::World;

/// Steps with faults, at least and at most.
const STEPS: (u64, u64) = (600, 1800);
/// Then so many, at most, until everything rests.
const STEPS_TO_REST: u64 = 6000;
/// It has to rest for so many steps.
const STEPS_AT_REST: u64 = 150;

/// So many steps of a run that found something are shown; [`Failure`] has all.
const SHOWN: usize = 60;

/// What is taken out of the actors. All off: production.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// A worker that starts leaves alone what ran under a lease that has run out.
    pub no_startup_fence: bool,
    /// Leases last longer than it takes to be declared dead.
    pub fence_longer_than_dead: bool,
    /// Nobody looks for payloads in rq that nobody works on.
    pub no_sweep: bool,
    /// After a change of master everything goes on at once.
    pub no_pause: bool,
    /// Registering, and a heartbeat that learned of foreign containers, renew the lease all the same.
    pub lease_before_verification: bool,
    /// A heartbeat renews a lease that has run out before the fence has done its work.
    pub revive_lease: bool,
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
        writeln!(f, "the last steps (ticks of 0.1 s, who, what):\n{}", last.join("\n"))?;
        write!(
            f,
            "again: EXPLORER_SEED={seed} EXPLORER_PLOT={plot:?} cargo test -p kubeleet-tests --test schedules replay -- --nocapture"
        )
    }
}

/// Runs one seed.
///
/// # Errors
/// When something does not hold.
pub async fn explore(
    ground: &Ground,
    seed: u64,
    switches: Switches,
    plot: Plot,
) -> Result<Stats, Box<Failure>> {
    let mut world = World::new(ground, seed, switches).await;
    let mut cast = Cast::new();
    let found = match plot {
        Plot::Chance => cast.play(&mut world).await,
        plot => cast.act(&mut world, plot).await,
    };
    match found {
        Ok(()) => Ok(world.stats),
        Err(wrong) => Err(Box::new(Failure { seed, plot, wrong, trace: world.trace() })),
    }
}

struct Cast {
    client: Client,
    schedulers: Vec<Scheduler>,
    workers: Vec<Worker>,
    /// Until when each actor stands still.
    paused: [u64; ACTORS],
}

impl Cast {
    fn new() -> Self {
        Self {
            client: Client::default(),
            schedulers: (0..SCHEDULERS).map(Scheduler::new).collect(),
            workers: (0..WORKERS).map(Worker::new).collect(),
            paused: [0; ACTORS],
        }
    }

    async fn play(&mut self, world: &mut World<'_>) -> Result<(), Vec<String>> {
        let failovers = world.fury > 0 && world.random.per_mille(600);
        for _ in 0..world.random.between(STEPS.0, STEPS.1) {
            if failovers {
                self.replicate(world).await;
            }
            self.strike(world);
            self.step(world).await?;
        }
        self.come_to_rest(world).await
    }

    /// No faults but those of the plot.
    async fn act(&mut self, world: &mut World<'_>, plot: Plot) -> Result<(), Vec<String>> {
        (world.fury, world.haste) = (0, 1000);
        let mut director = plot::Director::default();
        for _ in 0..Plot::STEPS {
            director.direct(plot, self, world).await;
            self.step(world).await?;
        }
        self.come_to_rest(world).await
    }

    async fn step(&mut self, world: &mut World<'_>) -> Result<(), Vec<String>> {
        // Now and then nobody does anything for a while.
        world.now += if world.random.per_mille(3) { world.random.between(10, 60) } else { 1 };
        let who = world.random.below(ACTORS + 3);
        // The workers have the most to do; the client is no faster than the others.
        let who = if who < ACTORS { Who::at(who) } else { Who::Worker(who - ACTORS) };
        if self.paused[who.index()] <= world.now || world.settles {
            match who {
                Who::Client if world.settles || world.random.per_mille(world.haste) => {
                    self.client.step(world).await
                }
                Who::Client => {}
                Who::Scheduler(index) => self.schedulers[index].step(world).await,
                Who::Worker(index) => self.workers[index].step(world).await,
            }
        }
        world.observe().await;
        if world.wrong.is_empty() { Ok(()) } else { Err(std::mem::take(&mut world.wrong)) }
    }

    /// No more faults and no more wishes: everything runs until nothing changes any more.
    async fn come_to_rest(&mut self, world: &mut World<'_>) -> Result<(), Vec<String>> {
        world.settles = true;
        world.cut_off = [0; ACTORS];
        world.past = None;
        world.say("", "no more faults");
        let mut rests = 0;
        for step in 0..STEPS_TO_REST {
            self.step(world).await?;
            let is_restless = !self.client.is_idle() || (step % 5 == 0 && !checks::unrest(world).is_empty());
            rests = if is_restless { 0 } else { rests + 1 };
            if rests > STEPS_AT_REST {
                world.stats.to_rest = step.saturating_sub(rests);
                return Ok(());
            }
        }
        let mut wrong = checks::unrest(world);
        wrong.insert(0, format!("does not come to rest within {STEPS_TO_REST} steps"));
        Err(wrong)
    }
}
