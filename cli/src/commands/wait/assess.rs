//! Assesses the state from one poll. Pure.

use api_types::{JobPhase, JobStatus, PodView, RolloutState, ServiceView};
use model::pod::EndedRun;
use model::pod::lifecycle::Phase;
use model::service::ServiceState;
use model::spec::Kind;

use output::humanize;
use output::objects::jobs::job_line;
use output::objects::pods::reason_suffix;
use output::objects::services::{pod_counts, rollout_line};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assessment {
    pub(super) line: String,
    pub(super) verdict: WaitVerdict,
    pub(super) is_unschedulable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitVerdict {
    Reached,
    Waiting,
    /// Nothing is changing any more: the goal needs an intervention.
    Failed,
    Deleted,
    Superseded,
}

/// A pod with one of these will not start, however long one waits.
const STUCK_REASONS: [&str; 3] = ["CrashLoopBackOff", "ImagePullBackOff", "StartFailed"];

impl Assessment {
    pub(super) fn new(line: impl Into<String>, verdict: WaitVerdict) -> Self {
        Self { line: line.into(), verdict, is_unschedulable: false }
    }
}

pub(super) fn ready(service: Option<&ServiceView>, generation: u64, is_superseded: bool) -> Assessment {
    let Some(service) = service else {
        return Assessment::new("the service was deleted", WaitVerdict::Deleted);
    };
    if service.state == ServiceState::Deleting {
        return Assessment::new("the service is being deleted", WaitVerdict::Deleted);
    }
    if service.pod.kind == Kind::Cron {
        return Assessment::new("it waits for its next time", WaitVerdict::Reached);
    }
    if let Some(job) = &service.job_status {
        return of_job(job, service.status.unschedulable > 0);
    }
    let status = &service.status;
    // A reverted generation never comes back, and a paused one needs a decision.
    if let Some(rollout) = service.rollout.as_ref().filter(|rollout| rollout.generation >= generation) {
        let verdict = match rollout.state {
            RolloutState::Paused | RolloutState::RolledBack => WaitVerdict::Failed,
            RolloutState::AtCanary => WaitVerdict::Reached,
        };
        return Assessment::new(rollout_line(rollout), verdict);
    }
    if is_superseded {
        let line = format!("superseded by generation {}", service.generation);
        return Assessment::new(line, WaitVerdict::Superseded);
    }
    let told = if status.message.is_empty() { &status.image_warning } else { &status.message };
    let line = pod_counts(service) + &reason_suffix("", told);
    let is_changing = status.pending + status.assigned + status.stopping > 0;
    let is_complete = status.ready_pods() + status.succeeded == status.desired;
    let is_current = service.generation >= generation && status.updated == status.running;
    let has_problem = status.failed > 0 || !status.message.is_empty();
    let ended_or_running = status.running + status.succeeded + status.failed;
    let verdict = if !is_changing && is_complete && is_current && !has_problem {
        WaitVerdict::Reached
    } else if !is_changing && status.failed > 0 && ended_or_running >= status.desired {
        WaitVerdict::Failed
    } else {
        WaitVerdict::Waiting
    };
    Assessment { line, verdict, is_unschedulable: status.unschedulable > 0 }
}

pub(super) fn may_be_stuck(service: &ServiceView) -> bool {
    service.held.is_some() || STUCK_REASONS.iter().any(|reason| service.status.message.contains(reason))
}

pub(super) fn held_for_good(service: &ServiceView) -> Option<String> {
    let message = &service.status.message;
    let waits_in_vain = |text: &&String| text.contains("waits for service") && text.contains(" failed: see");
    let is_final = |text: &&String| {
        text.contains("the pods that run stay")
            || text.contains(" is not ready after ")
            || waits_in_vain(text)
    };
    let why = service.held.as_ref().filter(is_final).or_else(|| Some(message).filter(waits_in_vain))?;
    Some(format!("{}: {why}", pod_counts(service)))
}

/// An image or program is missing, or the pod has crashed twice.
pub(super) fn stuck_pod(pods: &[PodView], generation: u64) -> Option<&PodView> {
    let is_stuck = |pod: &&PodView| {
        pod.generation >= generation
            && STUCK_REASONS.contains(&pod.reason.as_str())
            && (pod.reason != STUCK_REASONS[0] || pod.restarts > 0)
    };
    pods.iter().find(is_stuck)
}

pub(super) fn stuck(service: &ServiceView, pod: &PodView) -> Assessment {
    let output = pod.runs.last().map(|run| run.last_output.as_str()).unwrap_or_default();
    let message = EndedRun::explain(pod.message.clone(), output);
    let line = format!("{}: {}-{}: {}: {message}", pod_counts(service), pod.name, pod.replica, pod.reason);
    Assessment::new(line, WaitVerdict::Failed)
}

fn of_job(job: &JobStatus, is_unschedulable: bool) -> Assessment {
    let verdict = match job.phase {
        JobPhase::Running => WaitVerdict::Waiting,
        JobPhase::Complete => WaitVerdict::Reached,
        JobPhase::Failed => WaitVerdict::Failed,
    };
    Assessment { is_unschedulable, ..Assessment::new(job_line(job), verdict) }
}

pub(super) fn ended(service: Option<&ServiceView>) -> Assessment {
    let Some(service) = service.filter(|service| service.state != ServiceState::Deleting) else {
        return Assessment::new("the service was deleted", WaitVerdict::Deleted);
    };
    let status = &service.status;
    let is_active = status.pending + status.assigned + status.running + status.stopping > 0;
    let is_complete = status.succeeded + status.failed >= status.desired;
    let verdict = if is_complete && !is_active { WaitVerdict::Reached } else { WaitVerdict::Waiting };
    let line = pod_counts(service) + &reason_suffix("", &status.message);
    Assessment { line, verdict, is_unschedulable: status.unschedulable > 0 }
}

pub(super) fn service_gone(service: Option<&ServiceView>) -> Assessment {
    match service {
        None => Assessment::new("no pods left", WaitVerdict::Reached),
        Some(service) => {
            let status = &service.status;
            let left = status.pending + status.assigned + status.running + status.stopping;
            Assessment::new(format!("{} left", humanize::count(left, "pod")), WaitVerdict::Waiting)
        }
    }
}

pub(super) fn pod_gone(pod: Option<&PodView>) -> Assessment {
    match pod {
        None => Assessment::new("forgotten", WaitVerdict::Reached),
        Some(pod) => {
            let verdict =
                if pod.phase == Phase::Stopped { WaitVerdict::Reached } else { WaitVerdict::Waiting };
            Assessment::new(format!("{}{}", pod.phase, reason_suffix(&pod.reason, &pod.message)), verdict)
        }
    }
}

#[cfg(test)]
mod tests {
    use api_types::{RolloutView, ServiceStatus};
    use testkit::api_fixtures as fixtures;

    use super::*;

    fn assess(change: impl FnOnce(&mut ServiceStatus)) -> (String, WaitVerdict) {
        let mut service = fixtures::service("web");
        change(&mut service.status);
        let assessment = ready(Some(&service), 1, false);
        (assessment.line, assessment.verdict)
    }

    #[test]
    fn a_service_is_ready_when_all_pods_run_the_generation_without_a_problem() {
        assert_eq!(assess(|_| {}), ("3/3 running".to_owned(), WaitVerdict::Reached));
        let waiting: [fn(&mut ServiceStatus); 7] = [
            |s| s.running = 2,
            |s| (s.running, s.assigned) = (2, 1),
            |s| s.updated = 1,
            |s| s.stopping = 1,
            |s| s.message = "CrashLoopBackOff: exit code 1".to_owned(),
            |s| s.running = 4,
            |s| (s.running, s.updated, s.pending, s.failed) = (1, 1, 1, 1),
        ];
        for (n, change) in waiting.into_iter().enumerate() {
            assert_eq!(assess(change).1, WaitVerdict::Waiting, "case {n}");
        }
    }

    #[test]
    fn a_job_is_waited_for_until_it_is_complete_or_has_failed() {
        let status = |phase| JobStatus {
            phase,
            completions: 10,
            succeeded: 4,
            active: 2,
            failures: 1,
            ..Default::default()
        };
        let assess = |phase| {
            let mut job = ServiceView { job_status: Some(status(phase)), ..fixtures::service("sums") };
            job.pod.kind = Kind::Job;
            ready(Some(&job), 1, false)
        };
        assert_eq!(assess(JobPhase::Running).line, "4/10 complete, 2 active, 1 failed");
        assert_eq!(
            [JobPhase::Running, JobPhase::Complete, JobPhase::Failed].map(|phase| assess(phase).verdict),
            [WaitVerdict::Waiting, WaitVerdict::Reached, WaitVerdict::Failed]
        );
    }

    #[test]
    fn an_older_generation_than_the_written_one_is_not_ready() {
        let service = fixtures::service("web");
        assert_eq!(ready(Some(&service), 2, false).verdict, WaitVerdict::Waiting);
    }

    #[test]
    fn a_generation_that_was_rolled_back_or_is_paused_will_not_be_ready() {
        let with = |state, generation| {
            let rollout = Some(RolloutView { state, generation, message: "web-0 crashed".to_owned() });
            ready(Some(&ServiceView { generation: 3, rollout, ..fixtures::service("web") }), 2, false)
        };
        let rolled_back = with(RolloutState::RolledBack, 2);
        assert_eq!(rolled_back.line, "generation 2 was rolled back: web-0 crashed");
        assert_eq!(rolled_back.verdict, WaitVerdict::Failed);
        assert_eq!(with(RolloutState::Paused, 3).verdict, WaitVerdict::Failed);
        assert_eq!(with(RolloutState::AtCanary, 3).verdict, WaitVerdict::Reached);
        assert_eq!(with(RolloutState::RolledBack, 1).verdict, WaitVerdict::Reached, "of a change before");
    }

    #[test]
    fn a_change_that_another_one_replaced_says_so_unless_it_was_rolled_back() {
        let service = ServiceView { generation: 3, ..fixtures::service("web") };
        let assessment = ready(Some(&service), 2, true);
        assert_eq!(assessment, Assessment::new("superseded by generation 3", WaitVerdict::Superseded));
        let rollout =
            Some(RolloutView { state: RolloutState::RolledBack, generation: 2, message: "x".to_owned() });
        let rolled_back = ServiceView { rollout, ..service };
        assert_eq!(ready(Some(&rolled_back), 2, true).verdict, WaitVerdict::Failed);
    }

    #[test]
    fn what_no_waiting_helps_ends_the_wait_with_its_reason_and_the_last_lines() {
        let pod = |reason: &str, restarts, generation| PodView {
            reason: reason.to_owned(),
            restarts,
            generation,
            ..fixtures::pod("p", Phase::Running)
        };
        for (pod, expected, case) in [
            (pod("ImagePullBackOff", 0, 2), true, "no image"),
            (pod("StartFailed", 0, 2), true, "no program"),
            (pod("CrashLoopBackOff", 0, 2), false, "the first crash"),
            (pod("CrashLoopBackOff", 1, 2), true, "the second crash"),
            (pod("CrashLoopBackOff", 9, 1), false, "a pod that is being replaced"),
            (pod("NotReady", 0, 2), false, "it may become ready"),
        ] {
            assert_eq!(stuck_pod(&[pod], 2).is_some(), expected, "{case}");
        }
        let run =
            serde_json::json!({"id": "a", "node": "n", "exit_code": 3, "last_output": "KeyError: 'KEY'\n"});
        let runs = vec![serde_json::from_value(run).unwrap()];
        let pod = PodView { runs, message: "exited with code 3".to_owned(), ..pod("CrashLoopBackOff", 1, 2) };
        let line = stuck(&fixtures::service("web"), &pod).line;
        assert!(
            line.contains("CrashLoopBackOff: exited with code 3; it wrote at last: KeyError: 'KEY'"),
            "{line}"
        );
        let held = |why: &str| {
            held_for_good(&ServiceView { held: Some(why.to_owned()), ..fixtures::service("web") }).is_some()
        };
        assert!(held("a: pulling x failed: no such tag; the pods that run stay"));
        assert!(held("waits for service migrate: 0 of 1 completed, 1 failed: see `kubeleet logs migrate`"));
        assert!(!held("waits for service db: 0 of 1 ready"));
    }

    #[test]
    fn running_pods_with_a_problem_are_not_ready_where_the_api_tells() {
        let status = |ready| move |s: &mut ServiceStatus| (s.ready, s.summary) = (ready, "x".to_owned());
        assert_eq!(assess(status(3)).1, WaitVerdict::Reached);
        assert_eq!(assess(status(2)), ("2/3 running, 1 not ready".to_owned(), WaitVerdict::Waiting));
    }

    #[test]
    fn succeeded_pods_count_as_ready_and_failed_pods_as_failed() {
        assert_eq!(assess(|s| (s.running, s.updated, s.succeeded) = (0, 0, 3)).1, WaitVerdict::Reached);
        assert_eq!(assess(|s| (s.running, s.updated, s.failed) = (2, 2, 1)).1, WaitVerdict::Failed);
    }

    #[test]
    fn a_job_has_ended_when_no_pod_is_active_whatever_its_exit_code() {
        let verdict = |running, succeeded, failed| {
            let mut service = fixtures::service("job");
            let status = &mut service.status;
            (status.running, status.succeeded, status.failed) = (running, succeeded, failed);
            ended(Some(&service)).verdict
        };
        for (running, succeeded, failed, expected) in [
            (0, 3, 0, WaitVerdict::Reached),
            (0, 1, 2, WaitVerdict::Reached),
            (1, 2, 0, WaitVerdict::Waiting),
            (0, 2, 0, WaitVerdict::Waiting),
        ] {
            assert_eq!(verdict(running, succeeded, failed), expected, "{running} {succeeded} {failed}");
        }
        assert_eq!(ended(None).verdict, WaitVerdict::Deleted);
    }

    #[test]
    fn the_line_has_the_pod_counts_and_the_problem() {
        let (line, _) = assess(|s| {
            (s.running, s.updated, s.assigned) = (2, 2, 1);
            s.message = "ImagePullBackOff: no such image".to_owned();
        });
        assert_eq!(line, "2/3 running, 1 assigned (ImagePullBackOff: no such image)");
        let (line, _) = assess(|s| (s.running, s.updated, s.pending, s.unschedulable) = (0, 0, 3, 2));
        assert_eq!(line, "0/3 running, 1 pending, 2 unschedulable");
    }

    #[test]
    fn deleted_services_and_stopped_pods_are_gone() {
        assert_eq!(ready(None, 1, false).verdict, WaitVerdict::Deleted);
        let mut service = fixtures::service("web");
        service.state = ServiceState::Deleting;
        assert_eq!(ready(Some(&service), 1, false).verdict, WaitVerdict::Deleted);
        assert_eq!(service_gone(Some(&service)), Assessment::new("3 pods left", WaitVerdict::Waiting));
        assert_eq!(service_gone(None).verdict, WaitVerdict::Reached);
        assert_eq!(pod_gone(None).verdict, WaitVerdict::Reached);
        for (phase, verdict) in [
            (Phase::Stopping, WaitVerdict::Waiting),
            (Phase::Running, WaitVerdict::Waiting),
            (Phase::Stopped, WaitVerdict::Reached),
        ] {
            assert_eq!(pod_gone(Some(&fixtures::pod("p", phase))).verdict, verdict, "{phase}");
        }
    }
}
