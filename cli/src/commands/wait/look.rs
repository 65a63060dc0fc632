//! What one look at the cluster means for who waits. Pure.

use api::dto::{PodView, ServiceView};
use common::lifecycle::Phase;
use common::service::ServiceState;

use crate::output::pods::complaint;
use crate::output::services::counts;
use crate::output::words;

/// What was seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// How it is, on one line.
    pub(super) line: String,
    /// What follows.
    pub(super) verdict: Verdict,
    /// Whether pods fit no node.
    pub(super) unschedulable: bool,
}

/// What a look means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is so.
    Reached,
    /// It is on its way.
    Waiting,
    /// Nothing is on its way any more, and pods have failed: unless something changes, it will not be so.
    Failed,
    /// What was waited for was deleted.
    Lost,
}

impl Look {
    fn new(line: impl Into<String>, verdict: Verdict) -> Self {
        Self { line: line.into(), verdict, unschedulable: false }
    }
}

/// Do all pods of the service run, those of older generations gone, and is nothing to complain of?
pub(super) fn ready(service: Option<&ServiceView>, generation: u64) -> Look {
    let Some(service) = service else { return Look::new("it was deleted", Verdict::Lost) };
    if service.state == ServiceState::Deleting {
        return Look::new("it is being deleted", Verdict::Lost);
    }
    let status = &service.status;
    let line = counts(service) + &complaint("", &status.message);
    let moving = status.pending + status.assigned + status.stopping > 0;
    let full = status.running + status.succeeded == status.desired;
    let current = service.generation >= generation && status.updated == status.running;
    let verdict = if !moving && full && current && status.failed == 0 && status.message.is_empty() {
        Verdict::Reached
    } else if !moving
        && status.failed > 0
        && status.running + status.succeeded + status.failed >= status.desired
    {
        Verdict::Failed
    } else {
        Verdict::Waiting
    };
    Look { line, verdict, unschedulable: status.unschedulable > 0 }
}

/// Is the service forgotten?
pub(super) fn service_gone(service: Option<&ServiceView>) -> Look {
    match service {
        None => Look::new("no pods left", Verdict::Reached),
        Some(service) => {
            let status = &service.status;
            let left = status.pending + status.assigned + status.running + status.stopping;
            Look::new(format!("{} left", words::count(left, "pod")), Verdict::Waiting)
        }
    }
}

/// Does the pod not run any more?
pub(super) fn pod_gone(pod: Option<&PodView>) -> Look {
    match pod {
        None => Look::new("forgotten", Verdict::Reached),
        Some(pod) => {
            let verdict = if pod.phase == Phase::Stopped { Verdict::Reached } else { Verdict::Waiting };
            Look::new(format!("{}{}", pod.phase, complaint(&pod.reason, &pod.message)), verdict)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::samples;
    use api::dto::ServiceStatus;

    fn look(change: impl FnOnce(&mut ServiceStatus)) -> (String, Verdict) {
        let mut service = samples::service("web");
        change(&mut service.status);
        let look = ready(Some(&service), 1);
        (look.line, look.verdict)
    }

    #[test]
    fn ready_means_all_of_the_generation_and_nothing_else() {
        assert_eq!(look(|_| {}), ("3/3 running".to_owned(), Verdict::Reached));
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
            assert_eq!(look(change).1, Verdict::Waiting, "case {n}");
        }
    }

    #[test]
    fn an_older_generation_is_not_what_was_written() {
        let service = samples::service("web");
        assert_eq!(ready(Some(&service), 2).verdict, Verdict::Waiting);
    }

    #[test]
    fn ended_pods_count_as_they_ended() {
        assert_eq!(look(|s| (s.running, s.updated, s.succeeded) = (0, 0, 3)).1, Verdict::Reached);
        assert_eq!(look(|s| (s.running, s.updated, s.failed) = (2, 2, 1)).1, Verdict::Failed);
    }

    #[test]
    fn the_line_says_where_pods_are_and_why() {
        let (line, _) = look(|s| {
            (s.running, s.updated, s.assigned) = (2, 2, 1);
            s.message = "ImagePullBackOff: no such image".to_owned();
        });
        assert_eq!(line, "2/3 running, 1 assigned (ImagePullBackOff: no such image)");
        let (line, _) = look(|s| (s.running, s.updated, s.pending, s.unschedulable) = (0, 0, 3, 2));
        assert_eq!(line, "0/3 running, 1 pending, 2 unschedulable");
    }

    #[test]
    fn who_is_gone() {
        assert_eq!(ready(None, 1).verdict, Verdict::Lost);
        let mut service = samples::service("web");
        service.state = ServiceState::Deleting;
        assert_eq!(ready(Some(&service), 1).verdict, Verdict::Lost);
        assert_eq!(service_gone(Some(&service)), Look::new("3 pods left", Verdict::Waiting));
        assert_eq!(service_gone(None).verdict, Verdict::Reached);
        assert_eq!(pod_gone(None).verdict, Verdict::Reached);
        for (phase, verdict) in [
            (Phase::Stopping, Verdict::Waiting),
            (Phase::Running, Verdict::Waiting),
            (Phase::Stopped, Verdict::Reached),
        ] {
            assert_eq!(pod_gone(Some(&samples::pod("p", phase))).verdict, verdict, "{phase}");
        }
    }
}
