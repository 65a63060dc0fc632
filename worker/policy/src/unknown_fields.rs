//! Unknown fields of pushed payloads: a pod that asked to be privileged must not silently start unprivileged.
//! Harmless ones are ignored. Pure.

use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Present,
    /// A namespace of the host or of another container.
    ForeignNamespace,
    HostPath,
    /// Removing is allowed.
    Adds,
}

/// Compose, Docker's API and Kubernetes spell them differently: lower case without `_` and `-`.
const RULES: &[(&str, Rule)] = &[
    ("privileged", Rule::Present),
    ("allowprivilegeescalation", Rule::Present),
    ("network", Rule::ForeignNamespace),
    ("networkmode", Rule::ForeignNamespace),
    ("net", Rule::ForeignNamespace),
    ("hostnetwork", Rule::Present),
    ("pid", Rule::ForeignNamespace),
    ("pidmode", Rule::ForeignNamespace),
    ("hostpid", Rule::Present),
    ("ipc", Rule::ForeignNamespace),
    ("ipcmode", Rule::ForeignNamespace),
    ("hostipc", Rule::Present),
    ("uts", Rule::ForeignNamespace),
    ("utsmode", Rule::ForeignNamespace),
    ("userns", Rule::ForeignNamespace),
    ("usernsmode", Rule::ForeignNamespace),
    ("cgroup", Rule::ForeignNamespace),
    ("cgroupns", Rule::ForeignNamespace),
    ("cgroupnsmode", Rule::ForeignNamespace),
    ("cgroupparent", Rule::Present),
    ("devices", Rule::Present),
    ("device", Rule::Present),
    ("devicerequests", Rule::Present),
    ("devicecgrouprules", Rule::Present),
    ("gpus", Rule::Present),
    ("capadd", Rule::Present),
    ("capabilities", Rule::Adds),
    ("securityopt", Rule::Present),
    ("sysctls", Rule::Present),
    ("volumes", Rule::HostPath),
    ("volume", Rule::HostPath),
    ("binds", Rule::HostPath),
    ("mounts", Rule::HostPath),
    ("mount", Rule::HostPath),
    ("tmpfs", Rule::HostPath),
    ("hostpath", Rule::Present),
    ("volumesfrom", Rule::Present),
    ("volumedriver", Rule::Present),
    ("driveropts", Rule::Present),
];

/// A label called `privileged` asks for nothing.
const FREE_TEXT: &[&str] = &["labels", "annotations", "metadata"];

pub fn refusal(unknown: &Map<String, Value>) -> Option<String> {
    let field = forbidden(unknown, "")?;
    Some(format!(
        "`{field}` is not allowed on this node, and no setting of its operator allows it: pods get an image, \
         a command, an environment, ports, memory and CPU, and nothing else; remove the field and push again"
    ))
}

fn forbidden(object: &Map<String, Value>, prefix: &str) -> Option<String> {
    object.iter().find_map(|(key, value)| {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let normalized = normalize(key);
        let rule = RULES.iter().find(|(name, _)| *name == normalized).map(|(_, rule)| *rule);
        if rule.is_some_and(|rule| rule.refuses(value)) || names_the_engine_socket(value) {
            return Some(path);
        }
        if FREE_TEXT.contains(&normalized.as_str()) { None } else { within(value, &path) }
    })
}

fn within(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(object) => forbidden(object, path),
        Value::Array(values) => values.iter().find_map(|value| within(value, path)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

impl Rule {
    fn refuses(self, value: &Value) -> bool {
        match self {
            Rule::Present => !is_empty(value),
            Rule::ForeignNamespace => is_foreign_namespace(value),
            Rule::HostPath => has_host_path(value),
            Rule::Adds => match value.as_object() {
                Some(object) => object.iter().any(|(key, value)| normalize(key) == "add" && !is_empty(value)),
                None => !is_empty(value),
            },
        }
    }
}

fn normalize(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.trim().to_lowercase().as_str(), "" | "false" | "no" | "0"),
        Value::Array(values) => values.iter().all(is_empty),
        Value::Object(object) => object.values().all(is_empty),
    }
}

fn is_foreign_namespace(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let text = text.trim().to_lowercase();
            text == "host" || ["container:", "service:", "ns:", "/"].iter().any(|p| text.starts_with(p))
        }
        Value::Array(values) => values.iter().any(is_foreign_namespace),
        Value::Object(object) => object.contains_key("host") || object.values().any(is_foreign_namespace),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A single path is inside the container.
fn has_host_path(value: &Value) -> bool {
    match value {
        Value::String(text) => text.split_once(':').is_some_and(|(source, rest)| {
            let target_is_path = rest.starts_with('/');
            is_path(source) && target_is_path
        }),
        Value::Array(values) => values.iter().any(has_host_path),
        Value::Object(object) => object.iter().any(|(key, value)| {
            let text = value.as_str().unwrap_or_default();
            match normalize(key).as_str() {
                "type" => text.eq_ignore_ascii_case("bind"),
                "source" | "src" | "hostpath" | "device" => is_path(text) || value.is_object(),
                // As an object the key may be the path.
                _ => is_path(key) && is_path(text) || has_host_path(value),
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_path(text: &str) -> bool {
    text.starts_with(['/', '.', '~', '$', '\\'])
}

fn names_the_engine_socket(value: &Value) -> bool {
    const SOCKETS: [&str; 4] = ["docker.sock", "podman.sock", "containerd.sock", "crio.sock"];
    match value {
        Value::String(text) => SOCKETS.iter().any(|socket| text.contains(socket)),
        Value::Array(values) => values.iter().any(names_the_engine_socket),
        Value::Object(object) => object.iter().any(|(key, value)| {
            SOCKETS.iter().any(|socket| key.contains(socket)) || names_the_engine_socket(value)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn refusal_of(json: &str) -> Option<String> {
        refusal(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn refused_fields_are_named() {
        let table = [
            (r#"{"privileged":true}"#, "`privileged`"),
            (r#"{"Privileged":"yes"}"#, "`Privileged`"),
            (r#"{"HostConfig":{"Privileged":true}}"#, "`HostConfig.Privileged`"),
            (r#"{"host_config":{"PidMode":"host"}}"#, "`host_config.PidMode`"),
            (r#"{"securityContext":{"privileged":true}}"#, "`securityContext.privileged`"),
            (r#"{"network_mode":"host"}"#, "`network_mode`"),
            (r#"{"networkMode":"container:abc"}"#, "`networkMode`"),
            (r#"{"network":"Host"}"#, "`network`"),
            (r#"{"networks":["a"],"hostNetwork":true}"#, "`hostNetwork`"),
            (r#"{"pid":"host"}"#, "`pid`"),
            (r#"{"ipc":"container:x"}"#, "`ipc`"),
            (r#"{"uts":"host"}"#, "`uts`"),
            (r#"{"userns_mode":"host"}"#, "`userns_mode`"),
            (r#"{"cgroup_parent":"/system"}"#, "`cgroup_parent`"),
            (r#"{"devices":["/dev/kmsg"]}"#, "`devices`"),
            (r#"{"DeviceRequests":[{"Count":-1}]}"#, "`DeviceRequests`"),
            (
                r#"{"deploy":{"resources":{"reservations":{"devices":[{"count":1}]}}}}"#,
                "reservations.devices`",
            ),
            (r#"{"gpus":"all"}"#, "`gpus`"),
            (r#"{"cap_add":["SYS_ADMIN"]}"#, "`cap_add`"),
            (r#"{"CapAdd":["ALL"]}"#, "`CapAdd`"),
            (
                r#"{"securityContext":{"capabilities":{"add":["NET_ADMIN"]}}}"#,
                "`securityContext.capabilities`",
            ),
            (r#"{"security_opt":["seccomp=unconfined"]}"#, "`security_opt`"),
            (r#"{"sysctls":{"net.ipv4.ip_forward":"1"}}"#, "`sysctls`"),
            (r#"{"volumes":["/:/host"]}"#, "`volumes`"),
            (r#"{"volumes":["./x:/x:ro"]}"#, "`volumes`"),
            (r#"{"volumes":[{"type":"bind","source":"/etc","target":"/e"}]}"#, "`volumes`"),
            (r#"{"volumes":[{"name":"v","hostPath":{"path":"/etc"}}]}"#, "`volumes`"),
            (r#"{"Binds":["/etc:/etc"]}"#, "`Binds`"),
            (r#"{"Mounts":[{"Type":"bind","Source":"/etc"}]}"#, "`Mounts`"),
            (r#"{"volumes_from":["other"]}"#, "`volumes_from`"),
            (r#"{"volume_driver":"local"}"#, "`volume_driver`"),
            (r#"{"x":{"y":["/var/run/docker.sock"]}}"#, "`x`"),
            (r#"{"containers":[{"image":"a","privileged":true}]}"#, "`containers.privileged`"),
        ];
        for (json, field) in table {
            let reason = refusal_of(json).unwrap_or_else(|| panic!("{json} passes"));
            assert!(reason.contains(field), "{json}: {reason}");
            assert!(reason.contains("operator"), "{reason}");
        }
    }

    #[test]
    fn harmless_fields_pass() {
        let table = [
            r#"{}"#,
            r#"{"privileged":false}"#,
            r#"{"privileged":null,"cap_add":[],"devices":[],"sysctls":{},"volumes":[]}"#,
            r#"{"network_mode":"bridge","pid":"","ipc":"private"}"#,
            r#"{"securityContext":{"capabilities":{"drop":["ALL"]}}}"#,
            r#"{"labels":{"privileged":"true","devices":"many"}}"#,
            r#"{"volumes":["data:/data","/scratch"],"tmpfs":"/run:size=64m"}"#,
            r#"{"extra_hosts":["db:10.0.0.1"],"hostname":"web","cap_drop":["ALL"]}"#,
            r#"{"numInstances":3,"note":"host","team":{"name":"container: ship"}}"#,
        ];
        for json in table {
            assert_eq!(refusal_of(json), None, "{json}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_fields_do_not_panic(key: String, text: String, n: i64) {
            let nested = serde_json::json!({ key: [{ "volumes": text, "n": n }] });
            refusal(nested.as_object().unwrap());
        }
    }
}
