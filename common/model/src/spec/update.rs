//! `update`: the replacement of a service's pods when its specification changes.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OnDisconnect, PodSpec, Seconds, Violation};

/// As in Compose.
const DEFAULT_MONITOR: Duration = Duration::from_secs(5);

const DEFAULT_DEADLINE: Duration = Duration::from_secs(600);

/// How the pods of a service are replaced when its specification changes. A new pod is good when it was ready
/// for the time `monitor`. It is bad if it ended, was restarted or became unhealthy before, if its image
/// cannot be pulled, or if it is not ready within the time `deadline`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UpdatePolicy {
    /// Whether a pod is stopped before its successor starts, or when its successor is good. By default the
    /// latter, unless the pods are `stateful` or `global`, have volumes, host ports, `resources` or
    /// `on_disconnect: stop`, are plain processes, which have the ports of their machine, or the limits below
    /// say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<UpdateOrder>,
    /// How many pods are replaced at the same time, new ones that are not good yet among them; 0 means all.
    /// By default a quarter of the pods, and at least one; one if they are `stateful` or `global`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1)]
    pub parallelism: Option<u32>,
    /// How many pods there may be beyond the replicas; by default as many as `parallelism` says with
    /// `start-first`, and none with `stop-first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1)]
    pub max_surge: Option<u32>,
    /// How many replicas may be out of service; by default none with `start-first`, and as many as
    /// `parallelism` says with `stop-first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0)]
    pub max_unavailable: Option<u32>,
    /// How many pods are replaced before the update waits for `kubeleet rollout promote`; by default it does
    /// not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, example = 1)]
    pub canary: Option<u32>,
    /// Time between a new pod's becoming ready and the next one's being replaced, if it is longer than
    /// `monitor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10s")]
    pub delay: Option<Seconds>,
    /// Time for which a new pod must be ready to be good; by default 5 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s")]
    pub monitor: Option<Seconds>,
    /// Time within which a new pod must be ready, waiting for a node, for its image and for what it depends
    /// on among it; by default 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2m")]
    pub deadline: Option<Seconds>,
    /// The part of the pods that may be bad before the update has failed, from 0 to 1; by default 0: the
    /// first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1, example = 0.1)]
    pub max_failure_ratio: Option<f64>,
    /// The policy for a failed update.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Other values while the service goes back to the last specification with which all its pods were good,
    /// by a rollback or an undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackPolicy>,
}

/// How pods are replaced by those of a former specification. Fields that it leaves out are those of the
/// update.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RollbackPolicy {
    /// As `order` of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<UpdateOrder>,
    /// As `parallelism` of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0)]
    pub parallelism: Option<u32>,
    /// As `max_surge` of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1)]
    pub max_surge: Option<u32>,
    /// As `max_unavailable` of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0)]
    pub max_unavailable: Option<u32>,
    /// As `delay` of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0s")]
    pub delay: Option<Seconds>,
    /// As `monitor` of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "5s")]
    pub monitor: Option<Seconds>,
}

/// Whether a pod is stopped before its successor starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// A pod is stopped, then its successor starts in its place.
    StopFirst,
    /// The successor starts beside the pod, which is stopped when the successor is good.
    StartFirst,
}

impl UpdateOrder {
    /// Start first where two pods of a replica can run side by side; of a global service, users of Swarm and
    /// of DaemonSets expect one on a node.
    pub fn of_pods(pod: &PodSpec) -> Self {
        let is_alone = pod.stateful.is_some()
            || pod.mode.is_global()
            || pod.on_disconnect == OnDisconnect::Stop
            || !pod.persistent_volumes().is_empty()
            || !pod.shared_volumes().is_empty()
            || !pod.host_ports().is_empty()
            || !pod.resources.is_empty();
        if is_alone { Self::StopFirst } else { Self::StartFirst }
    }
}

/// The policy for a failed update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// No further pod is replaced, until `kubeleet rollout resume` or the next change.
    #[default]
    Pause,
    /// The service gets the last specification again with which all its pods were good.
    Rollback,
    /// It goes on.
    Continue,
}

impl UpdatePolicy {
    /// A ready pod with a check is good; without one, only time shows that it does not crash.
    pub fn without_policy(pod: &PodSpec) -> Self {
        let has_check = pod.containers.iter().any(|one| one.readiness.is_some() || one.healthcheck.is_some());
        Self { monitor: has_check.then(|| Seconds::new(0)), ..Self::default() }.resolved(pod)
    }

    /// With what the pods imply.
    pub fn resolved(&self, pod: &PodSpec) -> Self {
        let by_limits = self.max_surge == Some(0) || self.max_unavailable.is_some_and(|limit| limit > 0);
        let implied = || if by_limits { UpdateOrder::StopFirst } else { UpdateOrder::of_pods(pod) };
        let one_by_one = pod.stateful.is_some() || pod.mode.is_global();
        let parallelism = self.parallelism.or(one_by_one.then_some(1));
        Self { order: Some(self.order.unwrap_or_else(implied)), parallelism, ..self.clone() }
    }

    /// On ports of the machine a successor cannot listen beside its predecessor, which is stopped first
    /// unless the user says otherwise.
    pub fn in_force(policy: Option<&Self>, pod: &PodSpec, with_machine_ports: bool) -> Self {
        let in_force = policy.map_or_else(|| Self::without_policy(pod), |policy| policy.resolved(pod));
        if with_machine_ports && policy.is_none_or(Self::leaves_order_open) {
            return Self { order: Some(UpdateOrder::StopFirst), ..in_force };
        }
        in_force
    }

    fn leaves_order_open(&self) -> bool {
        self.order.is_none() && self.max_surge.is_none() && self.max_unavailable != Some(0)
    }

    pub fn going_back(&self) -> Cow<'_, Self> {
        let Some(RollbackPolicy { order, parallelism, max_surge, max_unavailable, delay, monitor }) =
            self.rollback.as_ref()
        else {
            return Cow::Borrowed(self);
        };
        Cow::Owned(Self {
            order: order.or(self.order),
            parallelism: parallelism.or(self.parallelism),
            max_surge: max_surge.or(self.max_surge),
            max_unavailable: max_unavailable.or(self.max_unavailable),
            delay: delay.or(self.delay),
            monitor: monitor.or(self.monitor),
            rollback: None,
            ..self.clone()
        })
    }

    /// Ready for this time, a new pod is good.
    pub fn monitor(&self) -> Duration {
        self.monitor.map_or(DEFAULT_MONITOR, Seconds::duration)
    }

    /// To become ready.
    pub fn deadline(&self) -> Duration {
        self.deadline.map_or(DEFAULT_DEADLINE, Seconds::duration)
    }

    /// Ready for this time, a new pod lets the next one be replaced.
    pub fn pace(&self) -> Duration {
        self.monitor().max(self.delay.map_or(Duration::ZERO, Seconds::duration))
    }

    /// The policy must be [resolved](Self::resolved).
    pub fn max_unavailable(&self, pods: usize) -> usize {
        let by_order = || if self.starts_first() { 0 } else { self.parallelism(pods) };
        self.max_unavailable.map_or_else(by_order, |limit| limit as usize)
    }

    /// The policy must be [resolved](Self::resolved).
    pub fn max_surge(&self, pods: usize) -> usize {
        let by_order = || if self.starts_first() { self.parallelism(pods) } else { 0 };
        self.max_surge.map_or_else(by_order, |limit| limit as usize)
    }

    fn starts_first(&self) -> bool {
        self.order == Some(UpdateOrder::StartFirst)
    }

    fn parallelism(&self, pods: usize) -> usize {
        match self.parallelism {
            None => (pods / 4).max(1),
            Some(0) => pods,
            Some(parallelism) => parallelism as usize,
        }
    }

    pub fn has_failed(&self, bad: usize, pods: usize) -> bool {
        bad as f64 > self.max_failure_ratio.unwrap_or_default() * pods as f64
    }

    pub(super) fn violations(&self, pod: &PodSpec) -> Vec<Violation> {
        let is_ratio = |ratio: &f64| (0.0..=1.0).contains(ratio);
        let wrong = |is_wrong: bool, field: &str, why: &str| {
            is_wrong.then(|| Violation::new(format!("/update/{field}"), why))
        };
        let ratio = self.max_failure_ratio.is_some_and(|ratio| !is_ratio(&ratio));
        let mut found: Vec<Violation> = [
            wrong(ratio, "max_failure_ratio", "is a part of the pods, from 0 to 1"),
            wrong(
                self.canary == Some(0),
                "canary",
                "is at least 1; leave it out to replace all pods at once",
            ),
            wrong(
                self.deadline.is_some_and(|deadline| deadline.duration() <= self.monitor()),
                "deadline",
                "must be longer than `monitor`, which is 5s by default",
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        let resolved = self.resolved(pod);
        found.extend(resolved.limit_violations("/update", pod));
        if resolved.rollback.is_some() {
            found.extend(resolved.going_back().limit_violations("/update/rollback", pod));
        }
        found
    }

    fn limit_violations(&self, pointer: &str, pod: &PodSpec) -> Vec<Violation> {
        let wrong = |is_wrong: bool, why: &str| is_wrong.then(|| Violation::new(pointer, why));
        if self.max_surge(1) > 0 && pod.stateful.is_some() {
            let why = "a stateful pod cannot run beside its successor: use `order: stop-first`";
            return vec![Violation::new(pointer, why)];
        }
        [
            wrong(
                self.max_surge(1) == 0 && self.max_unavailable(1) == 0,
                "max_surge and max_unavailable are both 0, so that no pod could ever be replaced",
            ),
            wrong(
                self.max_surge(1) > 0 && pod.on_disconnect == OnDisconnect::Stop,
                "a pod that starts before the one it replaces is stopped runs beside it, which `on_disconnect: stop` \
                 (the default with volumes) rules out: use `order: stop-first`, or `on_disconnect: keep`",
            ),
            wrong(
                self.max_surge(1) > 0 && !pod.persistent_volumes().is_empty(),
                "two pods of a replica cannot have its persistent volume at the same time: use `order: stop-first`",
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_how_many_and_when_it_has_failed() {
        let policy = |json: &str| serde_json::from_str::<UpdatePolicy>(json).expect("a policy");
        let default = policy("{}");
        assert_eq!((default.monitor(), default.on_failure), (Duration::from_secs(5), OnFailure::Pause));
        for (json, unavailable, surge, pods) in [
            ("{}", 0, 2, 8),
            ("{}", 0, 1, 1),
            (r#"{"order":"stop-first"}"#, 2, 0, 8),
            (r#"{"parallelism":0}"#, 0, 8, 8),
            (r#"{"parallelism":3}"#, 0, 3, 8),
            (r#"{"max_unavailable":3}"#, 3, 0, 8),
            (r#"{"max_surge":0}"#, 2, 0, 8),
            (r#"{"max_surge":1}"#, 0, 1, 8),
            (r#"{"order":"stop-first","max_surge":1}"#, 2, 1, 8),
            (r#"{"order":"start-first"}"#, 0, 2, 8),
            (r#"{"order":"start-first","parallelism":0}"#, 0, 8, 8),
            (r#"{"order":"start-first","parallelism":3,"max_unavailable":1}"#, 1, 3, 8),
            (r#"{"max_surge":2,"max_unavailable":0}"#, 0, 2, 8),
        ] {
            let policy = policy(json).resolved(&PodSpec::default());
            assert_eq!(
                (policy.max_unavailable(pods), policy.max_surge(pods)),
                (unavailable, surge),
                "{json}"
            );
        }
        let tenth = policy(r#"{"max_failure_ratio":0.1}"#);
        let failed =
            [(&default, 0, 10), (&default, 1, 10), (&tenth, 1, 10), (&tenth, 2, 10), (&default, 0, 0)];
        assert_eq!(
            failed.map(|(policy, bad, pods)| policy.has_failed(bad, pods)),
            [false, true, false, true, false]
        );
        let both = policy(
            r#"{"order":"stop-first","parallelism":1,"delay":"1m","canary":1,"rollback":{"parallelism":0,"delay":"0s"}}"#,
        );
        let back = both.going_back();
        assert_eq!((both.max_unavailable(8), both.pace().as_secs()), (1, 60));
        assert_eq!(
            (back.max_unavailable(8), back.pace().as_secs()),
            (8, 5),
            "what it leaves out is as before"
        );
        assert_eq!(*default.going_back(), default);
        let slow = policy(r#"{"delay":"1m","monitor":"10s"}"#);
        assert_eq!((slow.pace().as_secs(), slow.monitor().as_secs()), (60, 10));
    }

    #[test]
    fn a_pod_with_the_ports_of_its_machine_is_stopped_first_unless_the_user_says_otherwise() {
        for (json, with_machine_ports, starts_first) in [
            (None, false, true),
            (None, true, false),
            (Some(r#"{"on_failure":"rollback"}"#), true, false),
            (Some(r#"{"order":"start-first"}"#), true, true),
            (Some(r#"{"max_surge":1}"#), true, true),
            (Some(r#"{"max_unavailable":0}"#), true, true),
        ] {
            let policy: Option<UpdatePolicy> = json.map(|json| serde_json::from_str(json).expect("a policy"));
            let in_force = UpdatePolicy::in_force(policy.as_ref(), &PodSpec::default(), with_machine_ports);
            assert_eq!(in_force.starts_first(), starts_first, "{json:?} {with_machine_ports}");
        }
    }

    #[test]
    fn successors_start_first_where_two_pods_of_a_replica_can_run() {
        let order = |json: &str| {
            let value = serde_json::from_str(json).expect("JSON");
            let input = crate::spec::ServiceInput::from_value(&value).expect("a service");
            let desired = input.normalize().expect("a valid service");
            UpdatePolicy::without_policy(&desired.pod)
        };
        for (fields, starts_first) in [
            ("", true),
            (r#","ports":["80"]"#, true),
            (r#","ports":["8080:80"]"#, false),
            (r#","volumes":["data:/data"]"#, false),
            (r#","volumes":["/cache"]"#, true),
            (r#","on_disconnect":"stop""#, false),
        ] {
            let policy = order(&format!(r#"{{"name":"web","image":"nginx"{fields}}}"#));
            assert_eq!(policy.starts_first(), starts_first, "{fields}");
            assert_eq!(policy.monitor(), DEFAULT_MONITOR, "{fields}");
        }
        let checked = order(r#"{"name":"web","image":"nginx","readiness":{"http":{"port":80}}}"#);
        assert_eq!(checked.monitor(), Duration::ZERO, "its check shows that it is good");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let policy = |json: &str| serde_json::from_str::<UpdatePolicy>(json).expect("a policy");
        let pod = |on_disconnect| PodSpec { on_disconnect, ..PodSpec::default() };
        let (keep, stop) = (pod(OnDisconnect::Keep), pod(OnDisconnect::Stop));
        for (json, pod, pointers) in [
            (r#"{"max_failure_ratio":1,"canary":1}"#, &stop, &[][..]),
            (r#"{"max_failure_ratio":1.1}"#, &stop, &["/update/max_failure_ratio"]),
            (r#"{"canary":0}"#, &keep, &["/update/canary"]),
            (r#"{"order":"start-first"}"#, &keep, &[]),
            (r#"{"order":"start-first"}"#, &stop, &["/update"]),
            (r#"{"max_surge":1}"#, &stop, &["/update"]),
            (r#"{"max_unavailable":0}"#, &keep, &[]),
            (r#"{"max_unavailable":0}"#, &stop, &["/update"]),
            (r#"{"deadline":"5s"}"#, &keep, &["/update/deadline"]),
            (r#"{"deadline":"6s"}"#, &keep, &[]),
            (r#"{"order":"start-first","max_surge":0}"#, &keep, &["/update"]),
            (r#"{"rollback":{"order":"start-first","parallelism":0}}"#, &keep, &[]),
            (r#"{"rollback":{"order":"start-first"}}"#, &stop, &["/update/rollback"]),
            (r#"{"rollback":{"max_unavailable":0}}"#, &stop, &["/update/rollback"]),
        ] {
            let found: Vec<String> = policy(json).violations(pod).into_iter().map(|v| v.pointer).collect();
            assert_eq!(found, pointers, "{json}");
        }
    }
}
