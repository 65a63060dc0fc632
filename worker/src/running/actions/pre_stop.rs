//! The commands in a container's field `pre_stop`, run before it is stopped.

use std::time::Duration;

use engine::{Container, ExecResult, RuntimeError};
use model::spec::Hook;
use tokio::time::Instant;

use super::pod_action::PodAction;
use crate::handover::drain::StopFacts;
use crate::running::stop_order;
use crate::support::measure::ContainerStopReason;
use crate::support::text::seconds;

pub(super) fn limit(facts: &StopFacts, grace: Duration) -> Duration {
    let has_ended = matches!(facts.reason, ContainerStopReason::Ended);
    if has_ended || facts.has_no_time() { Duration::ZERO } else { grace }
}

impl PodAction {
    /// Failures delay nothing. Returns false if the worker ends: the next one runs all commands again.
    pub(super) async fn before_stop(&self, container: &Container, limit: Duration) -> bool {
        let index = stop_order::index_of(&self.managed.spec, container);
        let Some(spec) = index.map(|index| &self.managed.spec.containers[index]) else { return true };
        if limit.is_zero() || !container.state.may_run() {
            return true;
        }
        let begun = Instant::now();
        for hook in &spec.pre_stop {
            let rest = limit.saturating_sub(begun.elapsed());
            let exec = self.context.worker.runtime.exec(&container.handle, &hook.command.0, rest);
            let result = tokio::select! {
                // A hanging engine must not exceed the limit.
                result = tokio::time::timeout(rest, exec) => result.unwrap_or_else(|_| Ok(ExecResult::default())),
                () = self.context.tasks.stopping().cancelled() => return false,
            };
            if let Some(problem) = problem(hook, &result, limit) {
                tracing::warn!(pod = %self.managed.payload.id, "{problem}");
                self.update(|managed| managed.drained = Some(joined(managed.drained.take(), problem)));
            }
        }
        true
    }
}

fn problem(hook: &Hook, result: &Result<ExecResult, RuntimeError>, limit: Duration) -> Option<String> {
    // Its arguments may be confidential.
    let program = hook.command.0.first().map_or("", String::as_str);
    match result {
        Ok(ExecResult { exit_code: Some(0), .. }) => None,
        Ok(ExecResult { exit_code: Some(code), output }) => {
            let last = output.trim_end().lines().last().unwrap_or_default();
            let wrote = if last.is_empty() { String::new() } else { format!("; it wrote: {last}") };
            Some(format!("`pre_stop`: {program} exited with code {code}{wrote}"))
        }
        Ok(ExecResult { exit_code: None, .. }) => Some(format!(
            "`pre_stop`: {program} had not ended when the grace period of {} was over",
            seconds(limit)
        )),
        Err(RuntimeError::NotFound(_)) => None,
        Err(error) => Some(format!("`pre_stop`: {program} could not be run: {error}")),
    }
}

fn joined(before: Option<String>, problem: String) -> String {
    before.map(|before| format!("{before}; {problem}")).unwrap_or(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stops_that_have_time_run_commands() {
        let grace = Duration::from_secs(10);
        for (reason, never_twice, is_leased, expected) in [
            (ContainerStopReason::Requested, false, true, grace),
            (ContainerStopReason::Requested, false, false, grace),
            (ContainerStopReason::Requested, true, true, grace),
            (ContainerStopReason::Requested, true, false, Duration::ZERO),
            (ContainerStopReason::NotAssigned, false, true, grace),
            (ContainerStopReason::NotAssigned, true, true, Duration::ZERO),
            (ContainerStopReason::Unhealthy, true, true, grace),
            (ContainerStopReason::Ended, false, true, Duration::ZERO),
            (ContainerStopReason::Fenced, true, true, Duration::ZERO),
        ] {
            let drain = Duration::ZERO;
            let facts = StopFacts { reason, drain, can_answer: true, never_twice, is_leased };
            assert_eq!(limit(&facts, grace), expected, "{facts:?}");
        }
    }

    #[test]
    fn what_went_wrong_is_told_without_arguments() {
        let hook = Hook { command: model::spec::Command(vec!["/leave".to_owned(), "secret".to_owned()]) };
        let told = |exit_code, output: &str| {
            let result = Ok(ExecResult { exit_code, output: output.to_owned() });
            problem(&hook, &result, Duration::from_secs(3))
        };
        assert_eq!(told(Some(0), "fine\n"), None);
        assert_eq!(told(Some(1), "a\nb\n").unwrap(), "`pre_stop`: /leave exited with code 1; it wrote: b");
        assert_eq!(
            told(None, "").unwrap(),
            "`pre_stop`: /leave had not ended when the grace period of 3 s was over"
        );
        assert_eq!(joined(Some("a".to_owned()), "b".to_owned()), "a; b");
    }
}
