//! Each index of a job counts once, in the step in which its pod ends; each tick of a cron is taken once,
//! with its job.

use std::collections::BTreeMap;

use model::service::cron::MAX_RANGES;

use crate::checks::observed_state::{ObservedService, SimulatedState};

pub(crate) const CRON: &str = "tick";
pub(crate) const SCHEDULE: &str = "*/2 * * * * *";
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownJobs {
    /// With the write that created it, except those that a failover lost.
    pub(crate) created: BTreeMap<String, String>,
    /// `created` when the replica fell behind.
    pub(crate) in_replica: Option<BTreeMap<String, String>>,
    /// The first range may have gaps from then on.
    pub(crate) were_ranges_joined: bool,
}

pub(crate) fn jobs(observed: &SimulatedState) -> impl Iterator<Item = (&String, &ObservedService)> {
    observed.services.iter().filter(|(_, service)| service.kind == "job")
}

pub(crate) fn violations(observed: &SimulatedState, known: &mut KnownJobs) -> Vec<String> {
    let mut found = Vec::new();
    for (name, job) in jobs(observed) {
        let write = known.created.entry(name.clone()).or_insert_with(|| job.created_by.clone());
        if *write != job.created_by {
            found.push(format!("a tick is taken twice: job {name} is created again"));
            write.clone_from(&job.created_by);
        }
        let done = observed.done.get(name).map_or(0, BTreeMap::len);
        // A job that is being deleted has no replicas any more.
        if job.is_active && job.has_ended && !job.has_failed && done != job.replicas as usize {
            found.push(format!("job {name} is complete with {done} of {} indices", job.replicas));
        }
    }
    for pod in observed.pods.values().filter(|pod| pod.phase == "succeeded") {
        let is_counted = |done: &BTreeMap<String, String>| done.contains_key(&pod.replica.to_string());
        let job = observed.services.get(&pod.service).filter(|job| job.is_active && !job.has_failed);
        if job.is_some() && !observed.done.get(&pod.service).is_some_and(is_counted) {
            found.push(format!("index {} of {} has ended and is not counted", pod.replica, pod.service));
        }
    }
    let ticks = observed.services.get(CRON).map_or("", |cron| &cron.ticks);
    known.were_ranges_joined |= ranges(ticks).len() == MAX_RANGES;
    found.extend(untaken(observed));
    found
}

fn untaken(observed: &SimulatedState) -> Vec<String> {
    let Some(cron) = observed.services.get(CRON) else { return Vec::new() };
    let ranges = ranges(&cron.ticks);
    let is_taken = |tick: i64| ranges.iter().any(|(first, last)| (*first..=*last).contains(&tick));
    let ticks = jobs(observed).filter_map(|(name, _)| tick_of(name));
    ticks
        .filter(|tick| !is_taken(*tick))
        .map(|tick| format!("tick {tick} has a job and is not taken"))
        .collect()
}

pub(crate) fn tick_of(job: &str) -> Option<i64> {
    job.strip_prefix(CRON)?.strip_prefix('-')?.parse().ok()
}

pub(crate) fn ranges(text: &str) -> Vec<(i64, i64)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    text.split(',').filter_map(range).collect()
}
