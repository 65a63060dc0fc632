//! Decides about the ticks and ended jobs of a cron. Pure.

use model::RedisMillis;
use model::ids::ServiceName;
use model::service::{Service, ServiceState};
use model::spec::{Concurrency, CronPolicy};
use store::CronTick;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CronStep {
    Take(CronTick),
    /// End these jobs first.
    Replace(Vec<ServiceName>),
    /// Until the pods of replaced jobs are gone.
    Wait,
    Sleep(Option<i64>),
}

pub(crate) struct CronJob<'a> {
    pub(crate) service: &'a Service,
    /// Only counted if the cron replaces jobs.
    pub(crate) active_pods: usize,
}

/// Deterministic, so that no tick has two jobs.
pub(crate) fn job_name(cron: &ServiceName, tick: i64) -> Option<ServiceName> {
    ServiceName::new(format!("{cron}-{tick}")).ok()
}

/// `since` is when the cron got its schedule; neither time is in the future.
pub(crate) fn step(cron: &Service, jobs: &[CronJob<'_>], since: RedisMillis, now: RedisMillis) -> CronStep {
    let policy = match &cron.fields.cron {
        Some(policy) if !policy.suspend && cron.state == ServiceState::Active => policy,
        _ => return CronStep::Sleep(None),
    };
    let (since, now) = (seconds(since), seconds(now));
    let ticks = &cron.schedule.ticks;
    let catch_up = i64::try_from(policy.catch_up().as_secs()).unwrap_or(i64::MAX);
    let Some(due) = ticks.due(&policy.schedule, &policy.time_zone, since, now, catch_up) else {
        return CronStep::Sleep(ticks.next_after(&policy.schedule, &policy.time_zone, now));
    };
    let running: Vec<&Service> = jobs
        .iter()
        .map(|job| job.service)
        .filter(|job| is_of_time(job, cron) && job.progress.is_running())
        .collect();
    let mut tick =
        CronTick { tick: due.tick, ticks: due.taken.to_string(), missed: due.missed, skipped: None };
    match policy.concurrency {
        Concurrency::Allow => {}
        Concurrency::Forbid => {
            tick.skipped = running
                .first()
                .map(|job| format!("its job {} still runs, and concurrency is forbid", job.name));
        }
        Concurrency::Replace if !running.is_empty() => {
            return CronStep::Replace(running.into_iter().map(|job| job.name.clone()).collect());
        }
        Concurrency::Replace if jobs.iter().any(|job| job.active_pods > 0) => return CronStep::Wait,
        Concurrency::Replace => {}
    }
    CronStep::Take(tick)
}

fn is_of_time(job: &Service, cron: &Service) -> bool {
    job.state == ServiceState::Active && job.progress.of_cron.as_ref().is_some_and(|(of, _)| *of == cron.name)
}

/// `jobs` has the oldest first.
pub(crate) fn surplus_history<'a>(policy: &CronPolicy, jobs: &[&'a Service]) -> Vec<&'a Service> {
    let of = |is_complete: bool, kept: u32| {
        let ended: Vec<&Service> = jobs
            .iter()
            .filter(|job| job.state == ServiceState::Active && !job.progress.is_running())
            .filter(|job| job.progress.is_complete() == is_complete)
            .copied()
            .collect();
        let surplus = ended.len().saturating_sub(kept as usize);
        ended.into_iter().take(surplus).collect::<Vec<_>>()
    };
    [of(true, policy.history.successful), of(false, policy.history.failed)].concat()
}

fn seconds(at: RedisMillis) -> i64 {
    i64::try_from(at / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::fixtures;

    use super::*;

    fn cron(policy: &str, ticks: &str) -> Service {
        let mut cron = Service { name: "night".parse().unwrap(), ..fixtures::service() };
        cron.fields.cron = Some(serde_json::from_str(policy).unwrap());
        cron.schedule.ticks = ticks.parse().unwrap();
        cron
    }

    fn job(tick: i64, state: &str) -> Service {
        let name = job_name(&"night".parse().unwrap(), tick).unwrap();
        let mut job = Service { name, ..fixtures::service() };
        job.progress.of_cron = Some(("night".parse().unwrap(), tick));
        if state != "running" {
            job.progress.ended_at = Some(1);
        }
        if state == "failed" {
            job.progress.failure = Some(("BackoffLimitExceeded".into(), String::new()));
        }
        job
    }

    fn step_with(policy: &str, jobs: &[(&Service, usize)]) -> CronStep {
        let jobs: Vec<CronJob<'_>> = jobs
            .iter()
            .map(|(service, active_pods)| CronJob { service, active_pods: *active_pods })
            .collect();
        step(&cron(policy, "60-600"), &jobs, 0, 660_500)
    }

    fn taken(skipped: Option<&str>) -> CronStep {
        let skipped = skipped.map(str::to_owned);
        CronStep::Take(CronTick { tick: 660, ticks: "60-660".into(), missed: 0, skipped })
    }

    #[test]
    fn a_tick_that_is_due_is_taken() {
        assert_eq!(step_with(r#"{"schedule": "* * * * *"}"#, &[]), taken(None));
        assert_eq!(step_with(r#"{"schedule": "* * * * *"}"#, &[(&job(600, "running"), 1)]), taken(None));
        assert_eq!(step_with(r#"{"schedule": "0 * * * *"}"#, &[]), CronStep::Sleep(Some(3600)));
        assert_eq!(step_with(r#"{"schedule": "* * * * *", "suspend": true}"#, &[]), CronStep::Sleep(None));
        let deleting = Service { state: ServiceState::Deleting, ..cron(r#"{"schedule": "* * * * *"}"#, "") };
        assert_eq!(step(&deleting, &[], 0, 660_500), CronStep::Sleep(None));
    }

    #[test]
    fn concurrency_says_what_happens_beside_a_job_that_runs() {
        let (running, ended) = (job(600, "running"), job(540, "complete"));
        let forbid = r#"{"schedule": "* * * * *", "concurrency": "forbid"}"#;
        assert_eq!(step_with(forbid, &[(&ended, 0)]), taken(None));
        let why = "its job night-600 still runs, and concurrency is forbid";
        assert_eq!(step_with(forbid, &[(&ended, 0), (&running, 1)]), taken(Some(why)));
        let replace = r#"{"schedule": "* * * * *", "concurrency": "replace"}"#;
        assert_eq!(step_with(replace, &[(&running, 1)]), CronStep::Replace(vec![running.name.clone()]));
        assert_eq!(step_with(replace, &[(&job(600, "failed"), 1)]), CronStep::Wait);
        assert_eq!(step_with(replace, &[(&job(600, "failed"), 0)]), taken(None));
    }

    #[test]
    fn the_latest_ended_jobs_are_kept() {
        let states = ["complete", "failed", "complete", "running", "failed", "complete"];
        let jobs: Vec<Service> = states.iter().zip(1..).map(|(state, tick)| job(tick, state)).collect();
        let jobs: Vec<&Service> = jobs.iter().collect();
        let surplus = |policy: &str| -> Vec<String> {
            let policy: CronPolicy = serde_json::from_str(policy).unwrap();
            surplus_history(&policy, &jobs).iter().map(|job| job.name.to_string()).collect()
        };
        assert_eq!(surplus(r#"{"schedule": "@daily"}"#), ["night-2"]);
        let few = r#"{"schedule": "@daily", "history": {"successful": 1, "failed": 0}}"#;
        assert_eq!(surplus(few), ["night-1", "night-3", "night-2", "night-5"]);
    }
}
