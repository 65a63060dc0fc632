//! From a request to what the engine is asked for. Pure, and an allow-list: a field that is not named here can not be
//! had, whoever pushed the pod.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, PortBinding, PortMap, RestartPolicy,
    RestartPolicyNameEnum,
};
use common::spec::Port;

use crate::runtime::ContainerRequest;

/// Enough for any service, and a fork bomb ends before the machine does.
const PIDS: i64 = 4096;

/// The body of the create call.
///
/// `init` stays off: an image's own program is its process 1, as with `docker run`, and `docker-init` is not on every
/// engine. So a program that installs no handler for SIGTERM (a bare `sleep`) uses up the whole grace period.
pub(super) fn create_body(request: &ContainerRequest) -> ContainerCreateBody {
    let container = &request.container;
    let labels = request.identity.labels();
    let env = container.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let command = &container.command;
    ContainerCreateBody {
        image: Some(container.image.clone()),
        cmd: (!command.is_empty()).then(|| command.0.clone()),
        env: Some(env),
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        exposed_ports: Some(container.ports.iter().map(port_key).collect()),
        host_config: Some(host_config(request)),
        ..Default::default()
    }
}

fn host_config(request: &ContainerRequest) -> HostConfig {
    let container = &request.container;
    let memory = container.memory.map(|memory| i64::try_from(memory.bytes()).unwrap_or(i64::MAX));
    let cpus = container.cpus.map(|cpus| i64::try_from(cpus.millis()).unwrap_or(i64::MAX));
    HostConfig {
        // The worker restarts: an engine would revive on its own start what was stopped on purpose.
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), "10m".to_owned()),
                ("max-file".to_owned(), "3".to_owned()),
            ])),
        }),
        memory,
        // Equal to memory: no swap. Unset would grant as much swap again.
        memory_swap: memory,
        nano_cpus: cpus.map(|millis| millis.saturating_mul(1_000_000)),
        pids_limit: Some(PIDS),
        port_bindings: Some(port_bindings(&container.ports)),
        privileged: Some(false),
        publish_all_ports: Some(false),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        ..Default::default()
    }
}

fn port_key(port: &Port) -> String {
    format!("{}/{}", port.container, port.protocol.as_str())
}

/// Loopback unless an address is given: a service is not to be open to the network by omission.
fn port_bindings(ports: &[Port]) -> PortMap {
    let mut bindings = PortMap::new();
    for port in ports {
        let host_ip = port.host_ip.map_or_else(|| "127.0.0.1".to_owned(), |ip| ip.to_string());
        let host_port = port.host.map(|port| port.to_string()).unwrap_or_default();
        let binding = PortBinding { host_ip: Some(host_ip), host_port: Some(host_port) };
        bindings.entry(port_key(port)).or_default().get_or_insert_default().push(binding);
    }
    bindings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::runtime::testing::identity;

    fn host_config_of(json: &str) -> HostConfig {
        let container = serde_json::from_str(json).unwrap();
        let request = ContainerRequest { identity: identity("node", "pod", "assignment"), container };
        create_body(&request).host_config.unwrap()
    }

    #[test]
    fn ports_bind_to_loopback_unless_asked() {
        let config =
            host_config_of(r#"{"image":"x","ports":[80,"8080:80","0.0.0.0:53:53/udp","[::1]:8443:443"]}"#);
        let bindings = config.port_bindings.unwrap();
        let of = |key: &str| -> Vec<(String, String)> {
            let list = bindings[key].as_ref().unwrap();
            list.iter().map(|b| (b.host_ip.clone().unwrap(), b.host_port.clone().unwrap())).collect()
        };
        assert_eq!(of("80/tcp"), [("127.0.0.1".into(), "".into()), ("127.0.0.1".into(), "8080".into())]);
        assert_eq!(of("53/udp"), [("0.0.0.0".into(), "53".into())]);
        assert_eq!(of("443/tcp"), [("::1".into(), "8443".into())]);
    }

    #[test]
    fn limits_are_always_there() {
        let plain = host_config_of(r#"{"image":"x"}"#);
        assert_eq!(plain.pids_limit, Some(4096));
        assert_eq!(plain.security_opt, Some(vec!["no-new-privileges".to_owned()]));
        assert_eq!(plain.restart_policy.unwrap().name, Some(RestartPolicyNameEnum::NO));
        assert_eq!(plain.log_config.unwrap().config.unwrap()["max-size"], "10m");
        assert_eq!((plain.memory, plain.nano_cpus), (None, None));
        let limited = host_config_of(r#"{"image":"x","memory":"64MiB","cpus":0.5}"#);
        assert_eq!((limited.memory, limited.memory_swap), (Some(64 << 20), Some(64 << 20)));
        assert_eq!(limited.nano_cpus, Some(500_000_000));
    }

    #[test]
    fn an_empty_command_leaves_the_images_own() {
        let container = common::spec::ContainerSpec::of_image("x");
        let request = ContainerRequest { identity: identity("node", "pod", "assignment"), container };
        let body = create_body(&request);
        assert_eq!((body.cmd, body.entrypoint), (None, None));
        assert_eq!(body.labels.unwrap()["kubeleet.pod"], "pod");
    }
}
