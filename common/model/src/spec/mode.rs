//! `mode`: whether a service has a number of pods, or one on each node.
//!
//! Tests: beside the code

use serde::{Deserialize, Serialize};

/// How many pods a service has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// As many as `replicas` says.
    #[default]
    Replicated,
    /// One on each node that is alive, not cordoned, and satisfies the constraints.
    Global,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Global => "global",
        }
    }

    pub fn is_global(self) -> bool {
        self == Self::Global
    }

    pub(super) fn is_replicated(&self) -> bool {
        *self == Self::Replicated
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use crate::spec::{DesiredService, PodSpec, ServiceInput, UpdatePolicy};

    fn service(fields: serde_json::Value) -> Result<DesiredService, Vec<String>> {
        let mut input = json!({"name": "agent", "image": "a"});
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let input = ServiceInput::from_value(&input).unwrap();
        input
            .normalize()
            .map_err(|all| all.iter().map(|one| format!("{} {}", one.pointer, one.detail)).collect())
    }

    #[test]
    fn a_global_service_has_no_number_of_pods_and_is_read_again_as_it_was_written() {
        let desired = service(json!({"mode": "global"})).unwrap();
        assert_eq!((desired.replicas, desired.pod.needs_only_image()), (0, false));
        let stored = serde_json::to_value(&desired.pod).unwrap();
        assert_eq!(stored["mode"], "global");
        assert_eq!(serde_json::from_value::<PodSpec>(stored).unwrap(), desired.pod);
        let document = serde_json::to_value(ServiceInput::from(desired.clone())).unwrap();
        assert_eq!((document.get("replicas"), &document["mode"]), (None, &json!("global")));
        assert_eq!(ServiceInput::from_value(&document).unwrap().normalize().unwrap(), desired);
        let replicated = service(json!({"mode": "replicated"})).unwrap();
        assert_eq!(replicated, service(json!({})).unwrap());
        assert_eq!(serde_json::to_value(&replicated.pod).unwrap().get("mode"), None);
    }

    #[test]
    fn what_contradicts_one_pod_on_each_node_is_told_with_its_place() {
        for (fields, expected) in [
            (json!({"replicas": 3}), "/replicas a global service has one pod"),
            (json!({"replicas": 0}), "/replicas a global service has one pod"),
            (json!({"stateful": true}), "/stateful the pods of a global service"),
            (json!({"placement": {"spread": [{"by": "zone"}]}}), "/placement/spread a global"),
            (json!({"placement": {"max_per_node": 1}}), "/placement/max_per_node a global"),
            (
                json!({"placement": {"anti_affinity": [{"service": "web"}]}}),
                "/placement/anti_affinity a global",
            ),
            (json!({"kind": "job"}), "/mode is for services"),
        ] {
            let mut fields = fields;
            fields["mode"] = json!("global");
            let found = service(fields.clone()).unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{fields}: {found:?}");
        }
        let rules = json!({"mode": "global", "placement": {"constraints": ["disk"]}});
        assert!(service(rules).is_ok());
        let start_first = json!({"mode": "global", "update": {"order": "start-first"}});
        assert!(service(start_first).is_ok(), "both pods are on the node for a while");
    }

    #[test]
    fn its_pods_are_stopped_first_one_at_a_time_unless_asked_otherwise() {
        let pod = service(json!({"mode": "global"})).unwrap().pod;
        for (policy, unavailable, surge) in [
            (json!({}), 1, 0),
            (json!({"parallelism": 3}), 3, 0),
            (json!({"parallelism": 0}), 20, 0),
            (json!({"order": "start-first", "parallelism": 2}), 0, 2),
        ] {
            let policy: UpdatePolicy = serde_json::from_value(policy).unwrap();
            let resolved = policy.resolved(&pod);
            let found = (resolved.max_unavailable(20), resolved.max_surge(20));
            assert_eq!(found, (unavailable, surge), "{policy:?}");
        }
        assert_eq!(UpdatePolicy::without_policy(&pod).max_unavailable(20), 1);
    }
}
