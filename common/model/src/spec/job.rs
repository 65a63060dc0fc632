//! `job` and `cron`: services whose pods run to completion.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units::Period;
use super::violation::Violation;
use crate::service::cron::{Schedule, Zone};

/// More would make `done:<job>` too long to read.
pub const MAX_COMPLETIONS: u32 = 10_000;

pub const JOB_INDEX: &str = "KUBELEET_JOB_INDEX";

const DEFAULT_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(360);
const DEFAULT_BACKOFF_LIMIT: u32 = 6;
const DEFAULT_CATCH_UP: Duration = Duration::from_secs(600);

/// How the pods of a job run. A pod that ends with exit code 0 completes its index; one that fails is tried
/// again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobPolicy {
    /// How many pods have to end with exit code 0, each with its own index in `KUBELEET_JOB_INDEX`, from 0
    /// on.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 1, maximum = 10_000)]
    pub completions: u32,
    /// The most pods at the same time.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 1)]
    pub parallelism: u32,
    /// How many pods of the job may fail and be tried again; with one more the job fails. By default 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 6)]
    pub backoff_limit: Option<u32>,
    /// How long an index that failed waits until it is tried again, doubled each time up to six minutes; by
    /// default 10 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10s")]
    pub backoff: Option<Period>,
    /// The longest that the job may take, from its first pod on. Then it fails, and its pods are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1h")]
    pub deadline: Option<Period>,
    /// How long the job is kept after its end, with its results and the logs of its pods; by default until it
    /// is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1d")]
    pub ttl: Option<Period>,
}

fn one() -> u32 {
    1
}

impl Default for JobPolicy {
    fn default() -> Self {
        Self { completions: 1, parallelism: 1, backoff_limit: None, backoff: None, deadline: None, ttl: None }
    }
}

impl JobPolicy {
    pub fn backoff_limit(&self) -> u32 {
        self.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT)
    }

    pub fn backoff(&self, failures: u32) -> Duration {
        let first = self.backoff.map_or(DEFAULT_BACKOFF, Period::duration);
        let doublings = failures.saturating_sub(1).min(16);
        first.saturating_mul(1 << doublings).min(first.max(MAX_BACKOFF))
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let wrong = |is_wrong: bool, field: &str, why: String| {
            is_wrong.then(|| Violation::new(format!("/job/{field}"), why))
        };
        let completions = format!("must be from 1 to {MAX_COMPLETIONS}");
        let is_instant = |time: Option<Period>| time.is_some_and(|time| time.duration().is_zero());
        [
            wrong(!(1..=MAX_COMPLETIONS).contains(&self.completions), "completions", completions),
            wrong(
                self.parallelism == 0,
                "parallelism",
                "must be at least 1, or no pod would ever start".to_owned(),
            ),
            wrong(
                is_instant(self.deadline),
                "deadline",
                "must be more than 0; leave it out for none".to_owned(),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// When a cron creates a job, and which jobs are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CronPolicy {
    /// When a job begins: minute, hour, day of the month, month and day of the week, perhaps with seconds
    /// before them; or `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
    #[schema(value_type = String, example = "30 2 * * *")]
    pub schedule: Schedule,
    /// The time zone of the schedule, such as `Europe/Berlin`; by default UTC.
    #[serde(default, skip_serializing_if = "crate::spec::is_default")]
    #[schema(value_type = String, example = "Europe/Berlin")]
    pub time_zone: Zone,
    /// The policy for a time at which a job of the cron still runs.
    #[serde(default, skip_serializing_if = "crate::spec::is_default")]
    pub concurrency: Concurrency,
    /// How late a job may begin, if no scheduler or no Redis was there at its time; by default 10 minutes.
    /// Later times are missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10m")]
    pub catch_up: Option<Period>,
    /// How many ended jobs are kept.
    #[serde(default)]
    pub history: CronHistory,
    /// Whether no job begins by itself until this is `false` again. Nothing is made up for that time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// The policy for a time of the schedule at which a job of the cron still runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Concurrency {
    /// Another one begins beside it.
    #[default]
    Allow,
    /// None begins: this time is skipped.
    Forbid,
    /// It is stopped. When its pods are gone, another one begins.
    Replace,
}

impl Concurrency {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Forbid => "forbid",
            Self::Replace => "replace",
        }
    }
}

/// How many ended jobs of a cron are kept, the latest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CronHistory {
    /// Of the complete ones.
    #[serde(default = "three")]
    #[schema(default = 3)]
    pub successful: u32,
    /// Of the failed ones.
    #[serde(default = "one")]
    #[schema(default = 1)]
    pub failed: u32,
}

fn three() -> u32 {
    3
}

impl Default for CronHistory {
    fn default() -> Self {
        Self { successful: 3, failed: 1 }
    }
}

impl CronPolicy {
    /// Maximum delay of a job's start.
    pub fn catch_up(&self) -> Duration {
        self.catch_up.map_or(DEFAULT_CATCH_UP, Period::duration)
    }

    /// Empty while suspended.
    pub fn times_text(&self) -> String {
        if self.suspend { String::new() } else { format!("{} {}", self.schedule, self.time_zone) }
    }

    pub fn violations(&self) -> Vec<Violation> {
        let of = |field: &str, problem: Option<String>| {
            problem.map(|why| Violation::new(format!("/cron/{field}"), why))
        };
        let found = [of("schedule", self.schedule.problem()), of("time_zone", self.time_zone.problem())];
        found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_before_another_try_doubles_up_to_six_minutes() {
        let policy = JobPolicy::default();
        let waits = [1, 2, 3, 6, 7, 100].map(|failures| policy.backoff(failures).as_secs());
        assert_eq!(waits, [10, 20, 40, 320, 360, 360]);
        let slow: JobPolicy = serde_json::from_str(r#"{"backoff": "1h"}"#).expect("a policy");
        assert_eq!(slow.backoff(1), slow.backoff(9));
    }

    #[test]
    fn a_schedule_and_a_time_zone_that_are_none_are_violations() {
        let of = |document: &str| {
            let policy: CronPolicy = serde_json::from_str(document).expect("a policy");
            policy.violations().into_iter().map(|found| found.pointer).collect::<Vec<_>>()
        };
        assert!(of(r#"{"schedule": "@daily", "time_zone": "Europe/Berlin"}"#).is_empty());
        assert_eq!(of(r#"{"schedule": "often"}"#), ["/cron/schedule"]);
        assert_eq!(of(r#"{"schedule": "", "time_zone": "Mars"}"#), ["/cron/schedule", "/cron/time_zone"]);
    }
}
