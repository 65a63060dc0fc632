//! `update`: how the pods of a service are replaced when its specification changes, and when that has failed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Seconds, Violation};

/// The `monitor` of a policy that sets none, as in Compose.
const DEFAULT_MONITOR: Duration = Duration::from_secs(5);

/// How the pods of a service are replaced when its specification changes. A new pod is good when it was ready for the
/// time `monitor`. It is bad if it ended, was restarted or became unhealthy before, if its image cannot be pulled, or
/// if it is not ready within ten minutes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UpdatePolicy {
    /// How many pods may be out of service at the same time, new ones that are not good yet among them; 0 means all.
    /// By default a quarter of the pods, and at least one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1)]
    pub parallelism: Option<u32>,
    /// Time between a new pod's becoming ready and the next one's being replaced, if it is longer than `monitor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10s")]
    pub delay: Option<Seconds>,
    /// Time for which a new pod must be ready to be good; by default 5 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s")]
    pub monitor: Option<Seconds>,
    /// The part of the pods that may be bad before the update has failed, from 0 to 1; by default 0: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1, example = 0.1)]
    pub max_failure_ratio: Option<f64>,
    /// What happens when the update has failed.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// What happens when an update has failed.
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
    /// Returns for how long a new pod must have been ready to be good.
    pub fn monitor(&self) -> Duration {
        self.monitor.map_or(DEFAULT_MONITOR, Seconds::duration)
    }

    /// Returns for how long a new pod must have been ready before the next one is replaced.
    pub fn pace(&self) -> Duration {
        self.monitor().max(self.delay.map_or(Duration::ZERO, Seconds::duration))
    }

    /// Returns how many of a service's pods may be out of service at the same time.
    pub fn max_out_of_service(&self, pods: usize) -> usize {
        match self.parallelism {
            None => (pods / 4).max(1),
            Some(0) => pods,
            Some(parallelism) => parallelism as usize,
        }
    }

    /// Returns whether an update of this number of pods has failed, of which `bad` are bad.
    pub fn has_failed(&self, bad: usize, pods: usize) -> bool {
        bad as f64 > self.max_failure_ratio.unwrap_or_default() * pods as f64
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let is_wrong = |ratio: &f64| !(0.0..=1.0).contains(ratio);
        let wrong = self.max_failure_ratio.filter(is_wrong);
        wrong
            .map(|_| Violation::new("/update/max_failure_ratio", "is a part of the pods, from 0 to 1"))
            .into_iter()
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
        for (json, out, pods) in
            [("{}", 2, 8), ("{}", 1, 1), (r#"{"parallelism":0}"#, 8, 8), (r#"{"parallelism":3}"#, 3, 8)]
        {
            assert_eq!(policy(json).max_out_of_service(pods), out, "{json}");
        }
        let tenth = policy(r#"{"max_failure_ratio":0.1}"#);
        let failed =
            [(&default, 0, 10), (&default, 1, 10), (&tenth, 1, 10), (&tenth, 2, 10), (&default, 0, 0)];
        assert_eq!(
            failed.map(|(policy, bad, pods)| policy.has_failed(bad, pods)),
            [false, true, false, true, false]
        );
        let slow = policy(r#"{"delay":"1m","monitor":"10s"}"#);
        assert_eq!((slow.pace().as_secs(), slow.monitor().as_secs()), (60, 10));
        for (json, count) in [(r#"{"max_failure_ratio":1}"#, 0), (r#"{"max_failure_ratio":1.1}"#, 1)] {
            assert_eq!(policy(json).violations().len(), count, "{json}");
        }
    }
}
