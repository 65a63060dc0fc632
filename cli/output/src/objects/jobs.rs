//! Jobs, their results, and crons as table rows.

use api_types::{CronStatus, IndexResultView, JobStatus, ServiceView};
use jiff::Timestamp;
use serde::Serialize;

use crate::{TableRow, Titles, humanize};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct JobRow(pub ServiceView);

impl TableRow for JobRow {
    const TITLES: Titles = &["NAME", "COMPLETIONS", "STATUS", "ACTIVE", "FAILURES", "CRON", "AGE"];
    const WIDE_TITLES: Titles = &["STARTED", "ENDED", "MESSAGE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let service = &self.0;
        let job = service.job_status.clone().unwrap_or_default();
        vec![
            service.name.to_string(),
            format!("{}/{}", job.succeeded, job.completions),
            service.status.summary(service.state).to_owned(),
            job.active.to_string(),
            job.failures.to_string(),
            job.cron.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            humanize::age(&service.created_at, now),
            job.started_at.unwrap_or_default(),
            job.ended_at.unwrap_or_default(),
            humanize::shorten_message(&job.message, 80),
        ]
    }

    fn name(&self) -> String {
        format!("service/{}", self.0.name)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct CronRow(pub ServiceView);

impl TableRow for CronRow {
    const TITLES: Titles = &["NAME", "SCHEDULE", "TIME ZONE", "STATUS", "ACTIVE", "LAST", "NEXT", "AGE"];
    const WIDE_TITLES: Titles = &["CONCURRENCY", "JOBS"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let service = &self.0;
        let status = service.cron_status.clone().unwrap_or_default();
        let of_policy = |read: &dyn Fn(&model::spec::CronPolicy) -> String| {
            service.fields.cron.as_ref().map(read).unwrap_or_default()
        };
        let or_dash = |time: &Option<String>| time.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            service.name.to_string(),
            of_policy(&|cron| cron.schedule.to_string()),
            of_policy(&|cron| cron.time_zone.to_string()),
            service.status.summary(service.state).to_owned(),
            status.active.len().to_string(),
            or_dash(&status.last_at),
            or_dash(&status.next_at),
            humanize::age(&service.created_at, now),
            of_policy(&|cron| cron.concurrency.as_str().to_owned()),
            status.jobs.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("service/{}", self.0.name)
    }
}

impl TableRow for IndexResultView {
    const TITLES: Titles = &["INDEX", "RESULT", "EXIT CODE", "ATTEMPTS", "NODE", "ENDED"];
    const WIDE_TITLES: Titles = &["LAST LINE"];

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        vec![
            self.index.to_string(),
            if self.succeeded { "succeeded" } else { "failed" }.to_owned(),
            self.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
            self.attempts.to_string(),
            self.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            format!("{} ago", humanize::age(&self.ended_at, now)),
            humanize::shorten_message(self.last_output.lines().next_back().unwrap_or_default(), 80),
        ]
    }

    fn name(&self) -> String {
        format!("index/{}", self.index)
    }
}

/// `3/10 complete, 2 active, 1 failed`.
pub fn job_line(job: &JobStatus) -> String {
    let mut line = format!("{}/{} complete", job.succeeded, job.completions);
    for (count, word) in [(job.active, "active"), (job.failures, "failed")] {
        if count > 0 {
            line.push_str(&format!(", {count} {word}"));
        }
    }
    if !job.reason.is_empty() {
        line.push_str(&format!(" ({}: {})", job.reason, humanize::shorten_message(&job.message, 200)));
    }
    line
}

pub fn cron_line(status: &CronStatus) -> String {
    let time = |time: &Option<String>, none: &str| time.clone().unwrap_or_else(|| none.to_owned());
    format!(
        "next at {}, last at {}, {} of {} active",
        time(&status.next_at, "no time"),
        time(&status.last_at, "no time"),
        status.active.len(),
        humanize::count(status.jobs, "job")
    )
}
