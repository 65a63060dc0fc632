//! The node's policy: the allowed values of a pod's fields. Pure.
//!
//! A client that can write to a node's queue or to a specification in Redis would own the node if the worker
//! granted everything. Each field has a rule and a row in `docs/reference/pod-policy.md`.
//!
//! Tests: policy, scenarios::pod_isolation

pub mod unknown_fields;

use std::sync::Arc;

use daemon::config::PodPolicy;
use model::spec::{ContainerSpec, PodSpec};
use parking_lot::Mutex;

type FieldVerdict = Result<(), String>;

/// The field affects nothing outside its container; each rule says why.
fn any<T>(_value: &T) -> FieldVerdict {
    Ok(())
}

fn refusal(pod: &PodSpec, policy: &PodPolicy) -> Option<String> {
    let containers = pod.containers.iter().flat_map(|container| container_rules(container, policy));
    let refused = pod_rules(pod).into_iter().chain(containers).find_map(|(field, verdict)| {
        let why = verdict.err()?;
        Some(format!("`{field}` is refused by the policy of this node: {why}"))
    });
    refused.or_else(|| invalid_value(pod))
}

/// Pods of a service share their specification: it is checked once.
pub struct NodePolicy {
    rules: PodPolicy,
    /// Held, so that no other specification gets its memory address.
    allowed_last: Mutex<Option<Arc<PodSpec>>>,
}

impl NodePolicy {
    pub fn new(rules: PodPolicy) -> Self {
        Self { rules, allowed_last: Mutex::default() }
    }

    pub fn refusal(&self, pod: &Arc<PodSpec>) -> Option<String> {
        let mut allowed_last = self.allowed_last.lock();
        if allowed_last.as_ref().is_some_and(|allowed| Arc::ptr_eq(allowed, pod)) {
            return None;
        }
        let refusal = refusal(pod, &self.rules);
        if refusal.is_none() {
            *allowed_last = Some(pod.clone());
        }
        refusal
    }
}

/// Names all fields: a new one does not compile without a rule.
fn pod_rules(pod: &PodSpec) -> [(&'static str, FieldVerdict); 8] {
    let PodSpec { kind, mode, containers, on_disconnect, stop_grace_period, drain, stateful, resources } =
        pod;
    [
        // Its containers decide when it ends.
        ("kind", any(kind)),
        // See the rules below.
        ("containers", any(containers)),
        // They decide when this worker stops the pod.
        ("on_disconnect", any(on_disconnect)),
        ("stop_grace_period", any(stop_grace_period)),
        ("drain", any(drain)),
        // The schedulers keep to these.
        ("mode", any(mode)),
        ("stateful", any(stateful)),
        // Only variables follow from them.
        ("resources", any(resources)),
    ]
}

fn container_rules(container: &ContainerSpec, policy: &PodPolicy) -> [(&'static str, FieldVerdict); 34] {
    let ContainerSpec {
        name,
        image,
        pull_policy,
        entrypoint,
        command,
        environment,
        working_dir,
        user,
        ports,
        memory,
        memory_reservation,
        hostname,
        logging,
        cpus,
        pids_limit,
        ulimits,
        read_only,
        tmpfs,
        volumes,
        secrets,
        configs,
        cap_drop,
        init,
        stdin_open,
        stdin_once,
        tty,
        stop_signal,
        drain_signal,
        pre_stop,
        healthcheck,
        readiness,
        restart,
        depends_on,
        sidecar,
    } = container;
    [
        // Part of the name on the engine.
        ("name", any(name)),
        // Any valid reference; see `invalid_value`.
        ("image", any(image)),
        // The engine pulls, with the credentials of the node or the cluster.
        ("pull_policy", any(pull_policy)),
        // Inside the container. A user of the image gets no extra capability.
        ("entrypoint", any(entrypoint)),
        ("command", any(command)),
        ("environment", any(environment)),
        ("working_dir", any(working_dir)),
        ("user", any(user)),
        ("ports", policy.host.check_ports(ports)),
        // They only limit; the scheduler keeps the sums below the node's capacity.
        ("memory", any(memory)),
        ("memory_reservation", any(memory_reservation)),
        ("cpus", any(cpus)),
        ("hostname", any(hostname)),
        // Valid drivers only write on the node, up to a size; see `invalid_value`.
        ("logging", any(logging)),
        // They only limit: the largest value is the default.
        ("pids_limit", any(pids_limit)),
        ("read_only", any(read_only)),
        ("cap_drop", any(cap_drop)),
        // Values that would take time from other pods are invalid; locked memory counts as memory.
        ("ulimits", any(ulimits)),
        ("tmpfs", any(tmpfs)),
        // The target of a host path is checked when the container is created.
        ("volumes", policy.host.check_volumes(volumes)),
        // In memory. A worker without a key has no secrets.
        ("secrets", any(secrets)),
        ("configs", any(configs)),
        // Inside the container.
        ("init", any(init)),
        // For a client that may run commands there anyway.
        ("stdin_open", any(stdin_open)),
        ("stdin_once", any(stdin_once)),
        ("tty", any(tty)),
        ("stop_signal", any(stop_signal)),
        ("drain_signal", any(drain_signal)),
        // Inside the container, for the grace period at most.
        ("pre_stop", any(pre_stop)),
        // Inside the container, or to its own address; only the status is read.
        ("healthcheck", any(healthcheck)),
        ("readiness", any(readiness)),
        // With a growing backoff.
        ("restart", any(restart)),
        // They decide when this worker starts and stops it.
        ("depends_on", any(depends_on)),
        ("sidecar", any(sidecar)),
    ]
}

/// Any writer to Redis can change a specification.
fn invalid_value(pod: &PodSpec) -> Option<String> {
    let violations = pod.containers.iter().flat_map(|container| container.violations(""));
    let mut violations = violations.chain(pod.containers_violations());
    violations.next().map(|violation| format!("its specification is invalid: {violation}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::BTreeSet;

    use model::node::host_access::HostAccess;
    use serde_json::Value;
    use utoipa::PartialSchema;

    use super::*;

    fn pod(container: &str) -> PodSpec {
        serde_json::from_str(&format!(r#"{{"containers":[{container}]}}"#)).unwrap()
    }

    fn allowing(addresses: &[&str]) -> PodPolicy {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let host = HostAccess { port_addresses: Some(addresses), ..HostAccess::default() };
        PodPolicy { host, ..PodPolicy::default() }
    }

    fn fields<T: PartialSchema>() -> BTreeSet<String> {
        let schema: Value = serde_json::to_value(T::schema()).unwrap();
        schema["properties"].as_object().unwrap().keys().cloned().collect()
    }

    fn names(rules: &[(&str, FieldVerdict)]) -> BTreeSet<String> {
        rules.iter().map(|(field, _)| (*field).to_owned()).collect()
    }

    #[test]
    fn every_field_of_a_pod_has_a_rule_and_a_line_in_the_reference() {
        let pod = pod(r#"{"image":"a"}"#);
        let policy = PodPolicy::default();
        assert_eq!(names(&pod_rules(&pod)), fields::<PodSpec>());
        assert_eq!(names(&container_rules(&pod.containers[0], &policy)), fields::<ContainerSpec>());
        let reference = include_str!("../../../docs/reference/pod-policy.md");
        for field in fields::<ContainerSpec>() {
            assert!(reference.contains(&format!("| `{field}` |")), "{field} is not in the reference");
        }
    }

    #[test]
    fn ports_are_published_only_where_the_operator_allows() {
        let open = r#"{"image":"a","ports":["0.0.0.0:8080:80"]}"#;
        let own = r#"{"image":"a","ports":["10.0.0.5:8080:80"]}"#;
        let local = r#"{"image":"a","ports":["8080:80",443,"127.0.0.1:1:1","[::1]:2:2"]}"#;
        let table = [
            (open, PodPolicy::default(), None),
            (open, allowing(&[]), Some("0.0.0.0")),
            (open, allowing(&["10.0.0.5"]), Some("0.0.0.0")),
            (own, allowing(&["10.0.0.5"]), None),
            (own, allowing(&["10.0.0.6"]), Some("10.0.0.5")),
            (local, allowing(&[]), None),
        ];
        for (container, policy, expected) in table {
            let reason = refusal(&pod(container), &policy);
            assert_eq!(reason.is_some(), expected.is_some(), "{container}: {reason:?}");
            let Some((reason, address)) = reason.zip(expected) else { continue };
            for part in ["`ports`", address, "KUBELEET_PORT_ADDRESSES"] {
                assert!(reason.contains(part), "{reason}");
            }
        }
    }

    #[test]
    fn what_was_allowed_is_remembered_for_that_specification_only() {
        let (policy, allowed) = (NodePolicy::new(allowing(&[])), Arc::new(pod(r#"{"image":"a"}"#)));
        let refused = Arc::new(pod(r#"{"image":"a","ports":["0.0.0.0:8080:80"]}"#));
        for _ in 0..2 {
            assert_eq!(policy.refusal(&allowed), None);
            assert!(policy.refusal(&refused).is_some());
        }
    }

    #[test]
    fn paths_of_the_host_are_mounted_only_where_the_operator_allows() {
        let table = [
            ("/srv/app", &["/srv"][..], true),
            ("/srv", &["/mnt", "/srv"], true),
            ("/srv-other", &["/srv"], false),
            ("/etc", &["/srv"], false),
            ("/var/run/docker.sock", &["/srv"], false),
            ("/etc", &[], false),
        ];
        for (path, prefixes, is_allowed) in table {
            let bind_prefixes = prefixes.iter().map(Into::into).collect();
            let host = HostAccess { bind_prefixes, ..HostAccess::default() };
            let policy = PodPolicy { host, ..PodPolicy::default() };
            let reason =
                refusal(&pod(&format!(r#"{{"image":"a","volumes":["{path}:/d","data:/e"]}}"#)), &policy);
            assert_eq!(reason.is_none(), is_allowed, "{path}: {reason:?}");
            for part in reason.iter().flat_map(|_| ["`volumes`", path, "KUBELEET_BIND_PREFIXES"]) {
                assert!(reason.as_ref().is_some_and(|reason| reason.contains(part)), "{reason:?}");
            }
        }
    }

    #[test]
    fn a_specification_that_was_changed_in_redis_is_checked_again() {
        for (container, part) in [
            (r#"{"image":"../../containers"}"#, "/image"),
            (r#"{"image":"a","memory":1}"#, "/memory"),
            (r#"{"image":"a","cpus":0.001}"#, "/cpus"),
            (r#"{"image":"a","healthcheck":{"http":{"port":80,"path":"x"}}}"#, "/healthcheck/http/path"),
            (r#"{"image":"a","readiness":{"tcp":{"port":80},"interval":"1ms"}}"#, "/readiness/interval"),
        ] {
            let reason = refusal(&pod(container), &PodPolicy::default()).unwrap();
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(refusal(&pod(r#"{"image":"a","memory":"64MiB"}"#), &PodPolicy::default()), None);
    }
}
