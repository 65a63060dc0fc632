//! The progress of jobs and crons, as a part of their service.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::{NodeName, ServiceName};

/// How far a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobStatus {
    /// Whether it runs, is complete or has failed.
    pub phase: JobPhase,
    /// How many indices it has.
    pub completions: u64,
    /// How many of them are complete: a pod of theirs has ended with exit code 0.
    pub succeeded: u64,
    /// Pods that wait, start, run or are being stopped.
    pub active: u64,
    /// Pods that have failed, so far.
    pub failures: u64,
    /// When its first pod was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it was complete or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Why it failed, in a word: `BackoffLimitExceeded`, `DeadlineExceeded`, `PodRefused` or `Replaced`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The cron that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<ServiceName>,
    /// The time of the cron's schedule for which it was created; none if it was run by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
}

/// How far a job is, in a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// Some of its completions are missing.
    #[default]
    Running,
    /// All its completions are there.
    Complete,
    /// It failed, and its pods are stopped.
    Failed,
}

impl JobPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Failed => "failed",
        }
    }
}

/// The jobs of a cron, and its next times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CronStatus {
    /// The next time at which it creates a job; none while it is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// The last time of its schedule at which it created a job, or skipped one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Its jobs that have not ended.
    pub active: Vec<ServiceName>,
    /// The number of its jobs that are kept, including unfinished ones.
    pub jobs: u64,
}

/// The state of an index of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IndexResultView {
    /// The index.
    pub index: u32,
    /// Whether it is complete.
    pub succeeded: bool,
    /// How many of its pods have ended by themselves.
    pub attempts: u32,
    /// The exit code of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The node it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// When it ended.
    pub ended_at: String,
    /// How long it ran, in milliseconds; none if its worker was restarted meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_for_ms: Option<u64>,
    /// The last lines that it wrote.
    pub last_output: String,
}
