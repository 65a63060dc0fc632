//! Judges the rollout of a generation by its new pods. Pure.
//!
//! A generation is judged until all its pods were good at the same time: it has settled. Without an `update`
//! policy a bad pod only holds up the others. A new pod is *good* when it was ready for the time `monitor`.
//! It is *bad* if before that it fails, restarts, cannot start, is unhealthy, or is not ready in time.
//! Otherwise it is *young*, and holds up the next one. For a pod that had the specification before, earlier
//! failures do not count.

use std::time::Duration;

use model::RedisMillis;
use model::pod::lifecycle::Phase;
use model::pod::{EndedRun, PodRecord};
use model::service::{Service, ServiceState};
use model::spec::{OnFailure, UpdatePolicy};

/// They do not go away with time.
const BAD_REASONS: [&str; 5] =
    ["CrashLoopBackOff", "ImagePullBackOff", "Restarted", "StartFailed", "Unhealthy"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RolloutVerdict {
    Good,
    Young,
    Bad(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RolloutStep {
    /// All pods are good.
    Settle,
    /// Waits for an operator.
    AtCanary(String),
    /// No further pod is replaced.
    Pause(String),
    /// To a former specification.
    RollBack(String),
}

pub(crate) fn is_judged(service: &Service) -> bool {
    !service.rollout.is_settled && service.state == ServiceState::Active && service.wanted_pods() > 0
}

/// Pods that are replaced before the others wait for an operator.
pub(crate) fn canary(service: &Service) -> Option<usize> {
    let canary = service.fields.update.as_ref()?.canary? as usize;
    (!service.rollout.is_promoted && !service.goes_back()).then_some(canary)
}

pub(crate) fn verdict(
    service: &Service,
    policy: &UpdatePolicy,
    pod: &PodRecord,
    now: RedisMillis,
) -> RolloutVerdict {
    if pod.phase == Phase::Succeeded || (pod.is_ready() && is_for(ready_since(pod), policy.monitor(), now)) {
        return RolloutVerdict::Good;
    }
    // Until its record is updated, it has its former generation.
    if pod.generation < service.generation || pod.kept_at.is_some() {
        return in_time(pod, policy, pod.kept_at.unwrap_or(now), now);
    }
    let name = name_of(pod);
    if pod.phase == Phase::Failed || BAD_REASONS.contains(&pod.reason.as_str()) {
        return RolloutVerdict::Bad(format!("{name}: {}", what_it_says(pod)));
    }
    if pod.restarts > 0 {
        return RolloutVerdict::Bad(with_last_output(
            pod,
            format!("{name} was restarted ({})", pod.restarts),
        ));
    }
    in_time(pod, policy, pod.created_at, now)
}

fn is_for(since: RedisMillis, time: Duration, now: RedisMillis) -> bool {
    now.saturating_sub(since) >= time.as_millis() as RedisMillis
}

/// `Young` within the deadline after `since`, then `Bad`.
fn in_time(pod: &PodRecord, policy: &UpdatePolicy, since: RedisMillis, now: RedisMillis) -> RolloutVerdict {
    let is_leaving = matches!(pod.phase, Phase::Stopping | Phase::Stopped);
    if pod.is_ready() || is_leaving || !is_for(since, policy.deadline(), now) {
        return RolloutVerdict::Young;
    }
    let time = match policy.deadline().as_secs() {
        seconds if seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} seconds"),
    };
    RolloutVerdict::Bad(format!("{} is not ready after {time}: {}", name_of(pod), what_it_says(pod)))
}

fn name_of(pod: &PodRecord) -> String {
    format!("{}-{}", pod.name, pod.replica)
}

/// `pod` must be in service.
pub(crate) fn is_past_delay(policy: &UpdatePolicy, pod: &PodRecord, now: RedisMillis) -> bool {
    pod.phase == Phase::Succeeded || is_for(ready_since(pod), policy.pace(), now)
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) step: Option<RolloutStep>,
    pub(crate) held: Option<String>,
}

/// `new` are the desired pods of the service's generation.
pub(crate) fn judge<'a>(
    service: &Service,
    policy: &UpdatePolicy,
    new: impl Iterator<Item = &'a PodRecord>,
    now: RedisMillis,
) -> Judgement {
    if !is_judged(service) {
        return Judgement::default();
    }
    let (mut good, mut bad) = (0, Vec::new());
    for pod in new {
        match verdict(service, policy, pod, now) {
            RolloutVerdict::Good => good += 1,
            RolloutVerdict::Young => {}
            RolloutVerdict::Bad(why) => bad.push(why),
        }
    }
    let desired = service.wanted_pods() as usize;
    if good >= desired {
        return Judgement { step: Some(RolloutStep::Settle), held: None };
    }
    let canary = canary(service).filter(|canary| *canary < desired);
    let waits = canary.is_some_and(|canary| good >= canary) && bad.is_empty();
    if waits && service.rollout.at_canary.is_none() {
        let pods = if good == 1 { "1 new pod is" } else { &format!("{good} new pods are") };
        let what = format!(
            "{pods} good, of {desired}; `kubeleet rollout promote {0}` replaces the others, `kubeleet rollout undo {0}` \
             goes back",
            service.name
        );
        return Judgement { step: Some(RolloutStep::AtCanary(what)), held: None };
    }
    with_bad(service, policy, bad)
}

pub(crate) fn with_bad(service: &Service, policy: &UpdatePolicy, bad: Vec<String>) -> Judgement {
    let marks = &service.rollout;
    let has_failed = policy.has_failed(bad.len(), service.wanted_pods() as usize);
    let others = bad.len().saturating_sub(1);
    let Some(first) = bad.into_iter().next() else { return Judgement::default() };
    let why = if others > 0 { format!("{first}; and {others} more are bad") } else { first };
    // The first generation has no predecessor.
    if service.generation <= 1 {
        return Judgement::default();
    }
    if service.fields.update.is_none() {
        return Judgement { step: None, held: Some(why) };
    }
    // A rollback is not rolled back itself, and an operator judges a paused rollout.
    let is_judged = marks.paused.is_none() && !marks.is_resumed && marks.rolled_back.is_none() && has_failed;
    let step = match policy.on_failure {
        OnFailure::Pause if is_judged => Some(RolloutStep::Pause(why)),
        OnFailure::Rollback if is_judged => Some(RolloutStep::RollBack(why)),
        OnFailure::Pause | OnFailure::Rollback | OnFailure::Continue => None,
    };
    Judgement { step, held: None }
}

fn ready_since(pod: &PodRecord) -> RedisMillis {
    pod.ready_since.unwrap_or(pod.since)
}

fn what_it_says(pod: &PodRecord) -> String {
    let said = match (pod.reason.as_str(), pod.message.as_str()) {
        ("", "") => format!("it is {}", pod.phase),
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    };
    with_last_output(pod, said)
}

/// The message of an unhealthy container has it already.
fn with_last_output(pod: &PodRecord, message: String) -> String {
    match pod.runs.last() {
        Some(run) => EndedRun::explain(message, &run.last_output),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::service::RolloutMarks;
    use model::spec::ServiceFields;
    use serde_json::json;

    use super::super::plan::testing::{record, service};
    use super::*;

    const NOW: RedisMillis = 1_000_000;

    fn policy(json: &str) -> UpdatePolicy {
        serde_json::from_str(json).unwrap()
    }

    /// For these seconds.
    fn pod(phase: Phase, seconds: u64, change: impl FnOnce(&mut PodRecord)) -> PodRecord {
        let at = NOW - seconds * 1000;
        let mut pod = PodRecord { since: at, created_at: at, ..record("web", 0, 2, phase) };
        pod.ready_since = pod.is_ready().then_some(at);
        change(&mut pod);
        pod
    }

    #[test]
    fn a_pod_is_good_young_or_bad() {
        let policy = policy(r#"{"monitor": 10}"#);
        let reason = |reason: &'static str| move |pod: &mut PodRecord| pod.reason = reason.into();
        for (pod, expected, case) in [
            (pod(Phase::Running, 10, |_| {}), "good", "ready for long enough"),
            (pod(Phase::Running, 9, |_| {}), "young", "ready, but not for long enough"),
            (
                pod(Phase::Running, 60, |p| p.ready_since = Some(NOW)),
                "young",
                "runs for long, is ready just now",
            ),
            (pod(Phase::Running, 0, |p| p.ready_since = Some(NOW + 9000)), "young", "a clock was ahead"),
            (pod(Phase::Running, 60, reason("NotReady")), "young", "its readiness fails"),
            (pod(Phase::Running, 60, reason("Starting")), "young", "its health check has not passed yet"),
            (pod(Phase::Running, 600, reason("Starting")), "bad", "for too long"),
            (pod(Phase::Pending, 60, reason("Unschedulable")), "young", "it waits for a node"),
            (pod(Phase::Pending, 601, reason("Unschedulable")), "bad", "for too long"),
            (pod(Phase::Running, 3, reason("CrashLoopBackOff")), "bad", "it crashes"),
            (pod(Phase::Assigned, 3, reason("ImagePullBackOff")), "bad", "there is no such image"),
            (pod(Phase::Assigned, 3, reason("StartFailed")), "bad", "there is no such program"),
            (pod(Phase::Running, 3, |p| p.restarts = 1), "bad", "it crashed once"),
            (pod(Phase::Running, 30, |p| p.restarts = 1), "good", "and recovered"),
            (pod(Phase::Failed, 3, |_| {}), "bad", "it ended with an error"),
            (pod(Phase::Succeeded, 0, |_| {}), "good", "it ended well"),
            (pod(Phase::Stopping, 0, |_| {}), "young", "it is being stopped"),
            (pod(Phase::Stopping, 601, |_| {}), "young", "whenever it was created"),
            (pod(Phase::Running, 60, |p| p.generation = 1), "good", "it had the specification before"),
            (
                pod(Phase::Running, 601, |p| (p.generation, p.reason) = (1, "Unhealthy".into())),
                "young",
                "and was unhealthy before",
            ),
            (
                pod(Phase::Running, 601, |p| (p.kept_at, p.reason) = (Some(NOW), "Unhealthy".into())),
                "young",
                "which its record says",
            ),
            (
                pod(Phase::Running, 3, |p| (p.kept_at, p.restarts) = (Some(NOW), 1)),
                "young",
                "and was restarted before",
            ),
            (
                pod(Phase::Running, 700, |p| {
                    (p.kept_at, p.reason) = (Some(NOW - 600_000), "Unhealthy".into());
                }),
                "bad",
                "and does not become ready in time",
            ),
        ] {
            let verdict = verdict(&service(1, 2, ServiceState::Active), &policy, &pod, NOW);
            let word = match &verdict {
                RolloutVerdict::Good => "good",
                RolloutVerdict::Young => "young",
                RolloutVerdict::Bad(_) => "bad",
            };
            assert_eq!(word, expected, "{case}: {verdict:?}");
        }
    }

    #[test]
    fn a_bad_pod_says_once_what_it_wrote_at_last() {
        let said = |reason: &str, message: &str| {
            let mut pod = pod(Phase::Running, 3, |_| {});
            (pod.reason, pod.message) = (reason.into(), message.into());
            let run = json!({"id": "a", "node": "n", "ended_at": 1, "exit_code": 3, "last_output": "no database\n"});
            pod.runs = vec![serde_json::from_value(run).unwrap()];
            what_it_says(&pod)
        };
        let whole = "Unhealthy: GET /: refused; it wrote at last: no database";
        assert_eq!(said("Unhealthy", "GET /: refused; it wrote at last: no database"), whole);
        assert_eq!(said("Unhealthy", "GET /: refused"), whole);
    }

    #[test]
    fn a_rollout_settles_goes_on_or_has_failed() {
        let good = || pod(Phase::Running, 60, |_| {});
        let bad = || {
            pod(Phase::Running, 3, |p| {
                (p.reason, p.message) = ("CrashLoopBackOff".into(), "exit code 1".into())
            })
        };
        let why = "web-0: CrashLoopBackOff: exit code 1".to_owned();
        let roll_back = r#"{"on_failure": "rollback"}"#;
        let marks = |change: fn(&mut RolloutMarks)| {
            let mut marks = RolloutMarks::default();
            change(&mut marks);
            marks
        };
        for (json, pods, marks, generation, expected, case) in [
            (roll_back, vec![good(), good()], marks(|_| {}), 2, Some(RolloutStep::Settle), "all are good"),
            (roll_back, vec![good()], marks(|_| {}), 2, None, "an old one is left"),
            (
                roll_back,
                vec![good(), bad()],
                marks(|_| {}),
                2,
                Some(RolloutStep::RollBack(why.clone())),
                "one is bad",
            ),
            ("{}", vec![bad()], marks(|_| {}), 2, Some(RolloutStep::Pause(why)), "the default"),
            (r#"{"on_failure": "continue"}"#, vec![bad()], marks(|_| {}), 2, None, "it goes on"),
            (r#"{"max_failure_ratio": 0.5}"#, vec![bad()], marks(|_| {}), 2, None, "half may be bad"),
            (roll_back, vec![bad()], marks(|m| m.is_settled = true), 2, None, "it is over"),
            (roll_back, vec![bad()], marks(|m| m.is_resumed = true), 2, None, "it was resumed by hand"),
            (roll_back, vec![bad()], marks(|m| m.paused = Some("by hand".into())), 2, None, "it is paused"),
            (
                roll_back,
                vec![bad()],
                marks(|m| m.rolled_back = Some((1, "x".into()))),
                2,
                None,
                "it is a rollback",
            ),
            (roll_back, vec![bad()], marks(|_| {}), 1, None, "there is nothing before it"),
        ] {
            let update = Some(policy(json));
            let service = Service {
                fields: ServiceFields { update, ..Default::default() },
                rollout: marks,
                ..service(2, generation, ServiceState::Active)
            };
            assert_eq!(judged(&service, &pods).step, expected, "{case}");
        }
        let fields = ServiceFields { update: Some(policy(roll_back)), ..Default::default() };
        let deleted = Service { fields, ..service(0, 2, ServiceState::Deleting) };
        assert_eq!(judged(&deleted, &[]), Judgement::default(), "a deleted service");
        let none = service(0, 2, ServiceState::Active);
        assert_eq!(judged(&none, &[]), Judgement::default(), "no pod has shown anything");
    }

    fn judged(service: &Service, pods: &[PodRecord]) -> Judgement {
        judge(service, &service.replacing_policy(false), pods.iter(), NOW)
    }

    #[test]
    fn without_a_policy_a_bad_pod_holds_up_the_others_and_the_service_says_why() {
        let bad = pod(Phase::Assigned, 3, |pod| pod.reason = "ImagePullBackOff".into());
        let good = pod(Phase::Running, 60, |_| {});
        let of = |generation| service(1, generation, ServiceState::Active);
        let held = Judgement { step: None, held: Some("web-0: ImagePullBackOff".to_owned()) };
        assert_eq!(judged(&of(2), std::slice::from_ref(&bad)), held);
        assert_eq!(judged(&of(1), &[bad]), Judgement::default(), "its first generation");
        let settles = Judgement { step: Some(RolloutStep::Settle), held: None };
        assert_eq!(judged(&of(2), &[good]), settles, "also such a generation was good");
    }

    #[test]
    fn a_deadline_can_be_set() {
        let starting = |seconds| pod(Phase::Running, seconds, |pod| pod.reason = "Starting".into());
        let short = policy(r#"{"deadline": "90s"}"#);
        let verdict =
            |seconds| verdict(&service(1, 2, ServiceState::Active), &short, &starting(seconds), NOW);
        assert_eq!(verdict(89), RolloutVerdict::Young);
        let RolloutVerdict::Bad(why) = verdict(90) else { panic!("it has time still") };
        assert_eq!(why, "web-0 is not ready after 90 seconds: Starting");
    }
}
