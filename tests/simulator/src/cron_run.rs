//! The run of a cron with faults, until all its jobs have ended.

use std::collections::BTreeSet;

use model::service::cron::{Schedule, Ticks, Zone};

use crate::checks::known_jobs::{CRON, SCHEDULE, jobs, ranges, tick_of};
use crate::machine::process_id::{ProcessId, SCHEDULERS};
use crate::phases::{CONVERGENCE_LIMIT, STEPS_PER_CONVERGENCE_CHECK};
use crate::world::state::World;

/// In units of the silence after which a node is dead.
const PHASE: u64 = 12;
/// Ends of containers, per step and mille.
const ENDS: u64 = 20;

fn document(suspend: bool) -> String {
    serde_json::json!({
        "kind": "cron", "name": CRON, "image": "keep:part",
        "cron": {"schedule": SCHEDULE, "catch_up": "10s", "suspend": suspend, "history": {"successful": 2, "failed": 2}},
        "job": {"completions": 2, "parallelism": 2, "backoff": "1s", "backoff_limit": 1000},
    })
    .to_string()
}

fn missing(world: &World) -> Vec<String> {
    let Some(cron) = world.observed.services.get(CRON) else { return vec!["the cron is gone".to_owned()] };
    let (schedule, zone): (Schedule, Zone) = (SCHEDULE.parse().unwrap(), Zone::default());
    let had: BTreeSet<i64> = world.checks.jobs.created.keys().filter_map(|name| tick_of(name)).collect();
    let mut found = Vec::new();
    let ranges = ranges(&cron.ticks);
    // Schedulers that were away for longer than `catch_up` and clock changes leave gaps.
    let may_have_gaps = usize::from(world.checks.jobs.were_ranges_joined);
    for (first, last) in ranges.into_iter().skip(may_have_gaps) {
        let mut tick = first;
        while tick <= last {
            if !had.contains(&tick) {
                found.push(format!("tick {tick} is taken and had no job"));
            }
            let Some(next) = schedule.next_after(&zone, tick) else { break };
            tick = next;
        }
    }
    if cron.ticks.parse::<Ticks>().is_err() {
        found.push(format!("the ticks are {:?}", cron.ticks));
    }
    found
}

fn not_ended(world: &World) -> Vec<String> {
    let observed = &world.observed;
    let running = jobs(observed).filter(|(_, job)| !job.has_ended || !job.is_active);
    let mut found: Vec<String> = running.map(|(name, _)| format!("job {name} has not ended")).collect();
    let is_moving = |phase: &str| matches!(phase, "pending" | "assigned" | "running" | "stopping");
    let pods = observed.pods.values().filter(|pod| is_moving(&pod.phase));
    found.extend(pods.map(|pod| format!("a pod of {} is {}", pod.service, pod.phase)));
    found
}

impl World {
    pub(crate) fn note_jobs_of_replica(&mut self) {
        self.checks.jobs.in_replica = Some(self.checks.jobs.created.clone());
    }

    pub(crate) fn forget_lost_jobs(&mut self) {
        if let Some(created) = self.checks.jobs.in_replica.take() {
            self.checks.jobs.created = created;
        }
    }

    fn end_containers(&mut self) {
        for host in 0..self.cluster.hosts.len() {
            let name = self.cluster.hosts[host].name();
            for container in self.cluster.hosts[host].running() {
                if self.random.per_mille(ENDS) {
                    let code = i64::from(self.random.per_mille(150));
                    self.cluster.hosts[host].end_container(&container.handle, Some(code));
                    self.log(&name, format_args!("{} ends: {code}", container.handle));
                }
            }
        }
    }

    fn disturb(&mut self) {
        if self.random.per_mille(3) {
            let scheduler = ProcessId::Scheduler(self.random.below(SCHEDULERS));
            let until = self.clock.now + self.random.between(0, self.timing.dead);
            match self.random.per_mille(500) {
                true => self.crash(scheduler, until),
                false => self.pause(scheduler, until),
            }
        }
        if self.faults.replica.is_none() && self.random.per_mille(1) {
            self.stop_replication();
        } else if self.faults.replica.is_some() && self.random.per_mille(5) {
            self.fail_over();
        }
    }
}

pub(crate) fn run(world: &mut World) -> Result<(), Vec<String>> {
    world.faults.rate = 0;
    world.clients.lock().put_document(document(false));
    let end = world.clock.now + PHASE * world.timing.dead;
    while world.clock.now < end {
        world.end_containers();
        if world.observed.services.contains_key(CRON) && world.clients.lock().is_idle() {
            world.disturb();
        }
        world.step()?;
    }
    if world.faults.replica.is_some() {
        world.fail_over();
    }
    world.stop_faults();
    world.clients.lock().put_document(document(true));
    let begin = world.clock.now;
    let mut steps = 0;
    while world.clock.now < begin + CONVERGENCE_LIMIT * world.timing.dead {
        world.end_containers();
        world.step()?;
        steps += 1;
        if steps % STEPS_PER_CONVERGENCE_CHECK != 0 || !world.clients.lock().is_idle() {
            continue;
        }
        if not_ended(world).is_empty() {
            world.stats.convergence_millis = world.clock.now - begin;
            world.reread_all();
            world.take_violations()?;
            let missing = missing(world);
            world.stats.ticks = world.checks.jobs.created.len() as u64;
            return if missing.is_empty() { Ok(()) } else { Err(missing) };
        }
    }
    let mut violations = not_ended(world);
    violations.insert(0, "the jobs do not converge".to_owned());
    Err(violations)
}
