//! Checks whether this runtime can run a pod. Pure.

use model::spec::ContainerSpec;

use super::spawn::NO_COMMAND;

/// Limits that cannot be enforced are refused.
pub(super) fn refusal(container: &ContainerSpec) -> Option<String> {
    if container.entrypoint.is_empty() && container.command.is_empty() {
        return Some(NO_COMMAND.to_owned());
    }
    let asked: Vec<&str> = [
        ("user", container.user.is_some()),
        ("hostname", container.hostname.is_some()),
        ("memory_reservation", container.memory_reservation.is_some()),
        ("logging", container.logging.is_some()),
        ("pids_limit", container.pids_limit.is_some()),
        ("ulimits", !container.ulimits.is_empty()),
        ("read_only", container.read_only),
        ("tmpfs", !container.tmpfs.is_empty()),
        ("volumes", !container.volumes.is_empty()),
        ("secrets", !container.secrets.is_empty()),
        ("configs", !container.configs.is_empty()),
        ("stdin_open", container.stdin_open),
        ("tty", container.tty),
        ("cap_drop", !container.cap_drop.is_empty()),
    ]
    .into_iter()
    .filter_map(|(field, is_set)| is_set.then_some(field))
    .collect();
    (!asked.is_empty()).then(|| {
        format!(
            "the `process` runtime of this node starts plain processes, which cannot have `{}`: leave it out, or run \
             the service on nodes with a container engine",
            asked.join("`, `")
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn limits_that_a_process_would_not_get_are_refused_by_name() {
        let reason = |json: &str| refusal(&serde_json::from_str(json).unwrap());
        assert_eq!(reason(r#"{"image":"x","command":["sleep","1"],"init":true,"ports":[80]}"#), None);
        assert_eq!(reason(r#"{"image":"x","entrypoint":["sleep","1"],"stop_signal":"INT"}"#), None);
        assert!(reason(r#"{"image":"x"}"#).unwrap().contains("`command`"));
        let secret = reason(r#"{"image":"x","command":["a"],"secrets":["db"]}"#).unwrap();
        assert!(secret.contains("`secrets`"), "{secret}");
        let several =
            reason(r#"{"image":"x","command":["a"],"user":"1000","read_only":true,"volumes":["/d"]}"#)
                .unwrap();
        assert!(several.contains("`user`, `read_only`, `volumes`"), "{several}");
    }
}
