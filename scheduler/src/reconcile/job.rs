//! Plans the actions on a job. Pure.
//!
//! A job has a slot for each index, and pods in at most `parallelism` of them. An index is *done* when any
//! pod of it has succeeded; the script that ends a pod counts it. A failed index is retried later, until too
//! many pods have failed. The pods of an ended job keep their slots for their logs.

use std::time::Duration;

use model::RedisMillis;
use model::ids::PodId;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::{Service, ServiceState};
use model::spec::{JobPolicy, Period};
use store::{IndexResult, JobIndices};

use super::desired::DesiredSlots;
use super::lost_payload::{ObservedState, suspects};
use super::plan::{self, ReconcilePlan};
use super::slots::{PodStop, ReplicaSlot, StopReason, pods};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JobStep {
    Count(Vec<PodId>),
    Complete,
    /// Word and sentence.
    Fail(&'static str, String),
    Expire,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct JobPlan {
    pub(crate) pods: ReconcilePlan,
    pub(crate) step: Option<JobStep>,
    pub(crate) start: Vec<u32>,
    pub(crate) look_at: Option<RedisMillis>,
}

impl JobPlan {
    /// Except requeueing.
    pub(crate) fn is_complete(&self) -> bool {
        self.pods.is_complete() && self.step.is_none() && self.start.is_empty()
    }
}

pub(crate) struct JobState<'a> {
    pub(crate) service: &'a Service,
    pub(crate) policy: &'a JobPolicy,
    pub(crate) slots: &'a [ReplicaSlot],
    pub(crate) indices: &'a JobIndices,
    pub(crate) observed: &'a ObservedState,
}

/// `slots` must be sorted, without duplicates, and no time in the future.
pub(crate) fn plan(job: &JobState<'_>) -> JobPlan {
    debug_assert_eq!(job.service.state, ServiceState::Active);
    let mut plan = JobPlan {
        pods: ReconcilePlan { free: plan::free(job.slots), ..Default::default() },
        ..Default::default()
    };
    let again = plan::stopped_again(job.slots, DesiredSlots::First(job.service.replicas), job.observed);
    plan.pods.stop = job.surplus().chain(again).collect();
    plan.pods.requeue = suspects(job.slots, job.observed);
    if !job.service.progress.is_running() {
        plan.look_at = job.kept_until();
        if plan.look_at.is_some_and(|at| at <= job.observed.now) {
            plan.step = Some(JobStep::Expire);
        }
        return plan;
    }
    plan.step = job.step();
    if plan.step.is_none() {
        job.go_on(&mut plan);
    }
    plan
}

impl JobState<'_> {
    fn now(&self) -> RedisMillis {
        self.observed.now
    }

    fn is_done(&self, index: u32) -> bool {
        self.indices.done.contains(&index)
    }

    /// All of an ended job, and those of indexes that are done or do not exist.
    fn surplus(&self) -> impl Iterator<Item = PodStop> {
        let is_over = !self.service.progress.is_running();
        let reason = move |slot: &ReplicaSlot| match slot.slot.replica {
            _ if is_over => StopReason::JobEnded,
            _ => StopReason::Surplus,
        };
        pods(self.slots)
            .filter(move |(slot, pod)| {
                let index = slot.slot.replica;
                let is_needed = !is_over && index < self.service.replicas && !self.is_done(index);
                matches!(pod.phase, Phase::Pending | Phase::Assigned | Phase::Running) && !is_needed
            })
            .map(move |(slot, pod)| PodStop::new(slot, pod, reason(slot)))
    }

    fn step(&self) -> Option<JobStep> {
        let is_uncounted = |(slot, pod): &(&ReplicaSlot, &PodRecord)| {
            pod.phase == Phase::Succeeded
                && slot.slot.replica < self.service.replicas
                && !self.is_done(slot.slot.replica)
        };
        let uncounted: Vec<PodId> =
            pods(self.slots).filter(is_uncounted).map(|(slot, _)| slot.id.clone()).collect();
        if !uncounted.is_empty() {
            return Some(JobStep::Count(uncounted));
        }
        if self.indices.done.len() as u64 >= u64::from(self.service.replicas) {
            return Some(JobStep::Complete);
        }
        self.refused().or_else(|| self.too_many_failures()).or_else(|| self.too_late())
    }

    /// It would be refused again.
    fn refused(&self) -> Option<JobStep> {
        let is_refused = |(_, pod): &(&ReplicaSlot, &PodRecord)| {
            pod.phase == Phase::Failed && pod.reason == "DeadLettered"
        };
        let (slot, pod) = pods(self.slots).find(is_refused)?;
        let why = format!("the pod of index {} was refused: {}", slot.slot.replica, pod.message);
        Some(JobStep::Fail("PodRefused", why))
    }

    fn too_many_failures(&self) -> Option<JobStep> {
        let limit = self.policy.backoff_limit();
        let failures = self.service.progress.failures;
        if failures <= limit {
            return None;
        }
        let last = self.indices.failed.iter().max_by_key(|(_, result)| result.at);
        let last =
            last.map(|(index, result)| format!("; the last one was index {index}: {}", describe(result)));
        let pods = if failures == 1 { "1 pod has".to_owned() } else { format!("{failures} pods have") };
        let why = format!("{pods} failed, and backoff_limit is {limit}{}", last.unwrap_or_default());
        Some(JobStep::Fail("BackoffLimitExceeded", why))
    }

    fn deadline(&self) -> Option<RedisMillis> {
        Some(self.service.progress.started_at?.saturating_add(millis(self.policy.deadline?.duration())))
    }

    fn too_late(&self) -> Option<JobStep> {
        let deadline = self.policy.deadline?;
        if self.deadline()? > self.now() {
            return None;
        }
        let (done, all) = (self.indices.done.len(), self.service.replicas);
        let why =
            format!("it has run for {deadline}, its deadline, and {done} of {all} indices are complete");
        Some(JobStep::Fail("DeadlineExceeded", why))
    }

    fn kept_until(&self) -> Option<RedisMillis> {
        let ttl: Period = self.policy.ttl?;
        Some(self.service.progress.ended_at?.saturating_add(millis(ttl.duration())))
    }

    fn go_on(&self, plan: &mut JobPlan) {
        let is_active = |pod: &PodRecord| !pod.phase.is_terminal();
        let active = pods(self.slots).filter(|(_, pod)| is_active(pod)).count()
            + self.slots.iter().filter(|slot| slot.pod().is_none()).count();
        let mut room = (self.policy.parallelism as usize).saturating_sub(active);
        let mut taken = self.slots.iter().map(|slot| (slot.slot.replica, slot)).peekable();
        let mut look_at = self.deadline();
        for index in (0..self.service.replicas).filter(|index| !self.is_done(*index)) {
            while taken.next_if(|(replica, _)| *replica < index).is_some() {}
            let holder = taken.next_if(|(replica, _)| *replica == index).map(|(_, slot)| slot);
            let failed =
                holder.and_then(|slot| Some((slot, slot.pod().filter(|pod| pod.phase == Phase::Failed)?)));
            if holder.is_some() && failed.is_none() {
                continue;
            }
            if let Some(at) =
                self.try_again_at(index, failed.map(|(_, pod)| pod)).filter(|at| *at > self.now())
            {
                look_at = Some(look_at.map_or(at, |other| other.min(at)));
            } else if room > 0 {
                room -= 1;
                match failed {
                    Some((slot, pod)) => plan.pods.stop.push(PodStop::new(slot, pod, StopReason::Retried)),
                    None => plan.start.push(index),
                }
            }
        }
        plan.look_at = look_at;
    }

    fn try_again_at(&self, index: u32, failed: Option<&PodRecord>) -> Option<RedisMillis> {
        let known = self.indices.failed.get(&index).map(|result| (result.at, result.failures));
        let (at, failures) = known.or_else(|| failed.map(|pod| (pod.since, 1)))?;
        Some(at.saturating_add(millis(self.policy.backoff(failures))))
    }
}

fn describe(result: &IndexResult) -> String {
    let code = result.exit_code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
    let last = result.run.as_ref().and_then(|run| run.last_output.lines().next_back());
    match last.map(str::trim).filter(|line| !line.is_empty()) {
        Some(line) => format!("{code}, {line:?}"),
        None => code,
    }
}

fn millis(duration: Duration) -> RedisMillis {
    duration.as_millis().try_into().unwrap_or(RedisMillis::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::spec::ServiceFields;

    use super::super::plan::testing::{record, slot};
    use super::*;
    use testkit::fixtures;

    const NOW: RedisMillis = 10_000_000;

    struct Case {
        service: Service,
        slots: Vec<ReplicaSlot>,
        indices: JobIndices,
    }

    fn result(failures: u32, at: RedisMillis) -> IndexResult {
        IndexResult { failures, at, node: None, exit_code: Some(3), run: None }
    }

    impl Case {
        fn new(policy: &str, phases: &[(u32, Phase)]) -> Self {
            let policy: JobPolicy = serde_json::from_str(policy).expect("a policy");
            let replicas = policy.completions;
            let fields = ServiceFields { job: Some(policy), ..Default::default() };
            let service = Service { replicas, fields, ..fixtures::service() };
            let slots = phases.iter().map(|(index, phase)| slot(record("web", *index, 1, *phase))).collect();
            Self { service, slots, indices: JobIndices::default() }
        }

        fn done(mut self, indices: &[u32]) -> Self {
            self.indices.done = indices.iter().copied().collect();
            self
        }

        fn failed(mut self, failed: &[(u32, u32, RedisMillis)]) -> Self {
            let each = failed.iter().map(|(index, failures, at)| (*index, result(*failures, *at)));
            self.indices.failed = each.collect::<BTreeMap<_, _>>();
            self.service.progress.failures = failed.iter().map(|(_, failures, _)| failures).sum();
            self
        }

        fn plan(&self) -> JobPlan {
            let observed =
                ObservedState { now: NOW, settle_time: Duration::from_secs(30), ..Default::default() };
            let policy = self.service.fields.job.as_ref().expect("a job");
            plan(&JobState {
                service: &self.service,
                policy,
                slots: &self.slots,
                indices: &self.indices,
                observed: &observed,
            })
        }

        fn stops(&self) -> Vec<(u32, StopReason)> {
            self.plan().pods.stop.iter().map(|stop| (stop.replica, stop.reason)).collect()
        }
    }

    #[test]
    fn as_many_indices_as_allowed_have_pods_the_lowest_first() {
        let policy = r#"{"completions": 10, "parallelism": 3}"#;
        assert_eq!(Case::new(policy, &[]).plan().start, [0, 1, 2]);
        let running = [(0, Phase::Running), (1, Phase::Succeeded), (2, Phase::Stopping)];
        assert_eq!(Case::new(policy, &running).done(&[1]).plan().start, [3]);
        let waiting = [(0, Phase::Pending), (1, Phase::Assigned), (2, Phase::Running)];
        assert!(Case::new(policy, &waiting).plan().is_complete());
        assert_eq!(Case::new(policy, &[]).done(&[0, 2, 3, 9]).plan().start, [1, 4, 5]);
    }

    #[test]
    fn a_job_is_complete_when_all_indices_are_done() {
        let case = Case::new(r#"{"completions": 2}"#, &[(0, Phase::Succeeded), (1, Phase::Succeeded)]);
        assert_eq!(case.done(&[0, 1]).plan().step, Some(JobStep::Complete));
        let case =
            Case::new(r#"{"completions": 2}"#, &[(0, Phase::Succeeded), (1, Phase::Succeeded)]).done(&[0]);
        assert_eq!(
            case.plan().step,
            Some(JobStep::Count(vec![case.slots[1].id.clone()])),
            "counted before it ends"
        );
    }

    #[test]
    fn what_has_failed_is_tried_again_after_a_while() {
        let policy = r#"{"completions": 3, "parallelism": 3, "backoff": "10s"}"#;
        let phases = [(0, Phase::Failed), (1, Phase::Running), (2, Phase::Failed)];
        let case = Case::new(policy, &phases).failed(&[(0, 1, NOW - 10_000), (2, 2, NOW - 10_000)]);
        assert_eq!(case.stops(), [(0, StopReason::Retried)]);
        assert_eq!(case.plan().look_at, Some(NOW + 10_000), "the second wait is twice as long");
        // Its process died before it created the next pod.
        let case = Case::new(policy, &phases[1..]).failed(&[(0, 1, NOW - 9_999), (2, 2, NOW - 10_000)]);
        assert_eq!((case.plan().start, case.plan().look_at), (vec![], Some(NOW + 1)));
        let case = Case::new(policy, &phases[1..]).failed(&[(0, 1, NOW - 10_000), (2, 2, NOW - 10_000)]);
        assert_eq!(case.plan().start, [0]);
    }

    #[test]
    fn one_that_waits_to_be_tried_again_keeps_no_other_from_starting() {
        let case = Case::new(r#"{"completions": 3, "parallelism": 1}"#, &[(0, Phase::Failed)]);
        assert_eq!(case.failed(&[(0, 1, NOW)]).plan().start, [1]);
    }

    #[test]
    fn too_many_failures_fail_the_job_and_say_why() {
        let case = Case::new(r#"{"completions": 9, "backoff_limit": 2}"#, &[(4, Phase::Failed)]);
        assert_eq!(Case::new(r#"{"backoff_limit": 2}"#, &[]).failed(&[(0, 2, NOW)]).plan().step, None);
        let why =
            "3 pods have failed, and backoff_limit is 2; the last one was index 4: exit code 3".to_owned();
        let step = case.failed(&[(2, 2, NOW - 9), (4, 1, NOW)]).plan().step;
        assert_eq!(step, Some(JobStep::Fail("BackoffLimitExceeded", why)));
    }

    #[test]
    fn a_pod_that_is_refused_fails_the_job() {
        let mut refused = record("web", 0, 1, Phase::Failed);
        (refused.reason, refused.message) = ("DeadLettered".into(), "privileged is denied".into());
        let case = Case { slots: vec![slot(refused)], ..Case::new("{}", &[]) };
        let why = "the pod of index 0 was refused: privileged is denied".to_owned();
        assert_eq!(case.plan().step, Some(JobStep::Fail("PodRefused", why)));
    }

    #[test]
    fn a_job_fails_at_its_deadline_and_is_looked_at_then() {
        let mut case = Case::new(r#"{"deadline": "1m"}"#, &[(0, Phase::Running)]);
        assert_eq!(case.plan().look_at, None, "it has no first pod yet");
        case.service.progress.started_at = Some(NOW - 59_000);
        assert_eq!((case.plan().step, case.plan().look_at), (None, Some(NOW + 1_000)));
        case.service.progress.started_at = Some(NOW - 60_000);
        let why = "it has run for 60s, its deadline, and 0 of 1 indices are complete".to_owned();
        assert_eq!(case.plan().step, Some(JobStep::Fail("DeadlineExceeded", why)));
    }

    #[test]
    fn an_ended_job_stops_what_runs_keeps_what_has_ended_and_expires() {
        let phases = [(0, Phase::Succeeded), (1, Phase::Failed), (2, Phase::Running), (3, Phase::Pending)];
        let mut case = Case::new(r#"{"completions": 9, "parallelism": 9, "ttl": "1h"}"#, &phases).done(&[0]);
        case.service.progress.failure = Some(("DeadlineExceeded".into(), String::new()));
        case.service.progress.ended_at = Some(NOW - 3_599_000);
        assert_eq!(case.stops(), [(2, StopReason::JobEnded), (3, StopReason::JobEnded)]);
        let plan = case.plan();
        assert_eq!((plan.start, plan.step, plan.look_at), (vec![], None, Some(NOW + 1_000)));
        case.service.progress.ended_at = Some(NOW - 3_600_000);
        assert_eq!(case.plan().step, Some(JobStep::Expire));
    }

    #[test]
    fn a_second_pod_of_an_index_that_is_done_is_stopped() {
        let case =
            Case::new(r#"{"completions": 2, "parallelism": 2}"#, &[(0, Phase::Running), (1, Phase::Running)]);
        assert_eq!(case.done(&[1]).stops(), [(1, StopReason::Surplus)]);
    }
}
