//! Builds the create call of a container. An allow-list: fields not named here are never passed on.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, PortBinding, PortMap,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use model::spec::{Command, MAX_PIDS, Port, Ulimit};

use super::network::JoinedNetwork;
use super::{files, volumes};
use crate::ContainerRequest;

/// `dropped_capabilities` are those of the node's operator; the pod's own `cap_drop` is added. Without a
/// `network` and a sandbox, the container gets the default network of its engine.
pub(super) fn create_body(
    request: &ContainerRequest,
    dropped_capabilities: &[String],
    network: Option<&JoinedNetwork>,
) -> ContainerCreateBody {
    let container = &request.container;
    let labels = request.identity.labels();
    let env = container.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let words = |command: &Command| (!command.is_empty()).then(|| command.0.clone());
    ContainerCreateBody {
        image: Some(container.image.clone()),
        entrypoint: words(&container.entrypoint),
        cmd: words(&container.command),
        working_dir: container.working_dir.clone(),
        user: container.user.clone(),
        // The engine refuses a host name in another container's network.
        hostname: container.hostname.clone().filter(|_| request.sandbox.is_none()),
        stop_signal: container.stop_signal.map(|signal| signal.to_string()),
        open_stdin: container.stdin_open.then_some(true),
        stdin_once: container.stdin_once.then_some(true),
        tty: container.tty.then_some(true),
        env: Some(env),
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        exposed_ports: Some(own_ports(request).iter().map(port_key).collect()),
        // The worker runs all checks; two checkers could disagree.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..Default::default() }),
        host_config: Some(host_config(request, dropped_capabilities, network)),
        ..Default::default()
    }
}

fn own_ports(request: &ContainerRequest) -> &[Port] {
    if request.sandbox.is_some() { &[] } else { &request.container.ports }
}

fn host_config(
    request: &ContainerRequest,
    dropped_capabilities: &[String],
    network: Option<&JoinedNetwork>,
) -> HostConfig {
    let network = network.filter(|_| request.sandbox.is_none());
    let of_sandbox = request.sandbox.as_ref().map(|sandbox| format!("container:{sandbox}"));
    let container = &request.container;
    let memory = container.memory.map(|memory| i64::try_from(memory.bytes()).unwrap_or(i64::MAX));
    let reservation = container.memory_reservation.and_then(|memory| i64::try_from(memory.bytes()).ok());
    let logging = container.logging.clone().unwrap_or_default();
    let (max_size, max_file) = logging.limits();
    let cpus = container.cpus.map(|cpus| i64::try_from(cpus.millis()).unwrap_or(i64::MAX));
    HostConfig {
        // The worker restarts. A starting engine would revive containers stopped on purpose.
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some(logging.driver.as_str().to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), max_size.to_string()),
                ("max-file".to_owned(), max_file.to_string()),
            ])),
        }),
        memory,
        memory_reservation: reservation,
        // Equal to memory: no swap. Unset would allow as much swap as memory.
        memory_swap: memory,
        nano_cpus: cpus.map(|millis| millis.saturating_mul(1_000_000)),
        pids_limit: Some(container.pids_limit.unwrap_or(MAX_PIDS).into()),
        ulimits: Some(container.ulimits.iter().map(ulimit).collect()),
        readonly_rootfs: Some(container.read_only),
        tmpfs: Some(container.tmpfs.as_slice().iter().map(|entry| tmpfs(entry)).collect()),
        mounts: Some([volumes::mounts(request), files::mounts(request)].concat()),
        // Not by default, as with `docker run`: not every engine has `docker-init`.
        init: container.init.then_some(true),
        cap_drop: Some([dropped_capabilities, &container.cap_drop].concat()),
        port_bindings: Some(port_bindings(own_ports(request))),
        network_mode: of_sandbox.or_else(|| network.map(|network| network.name.clone())),
        dns: network.map(|network| vec![network.resolver.to_string()]),
        dns_search: network.map(|network| vec![network.domain.to_owned()]),
        dns_options: network.map(|network| network.resolver_options.clone()),
        privileged: Some(false),
        publish_all_ports: Some(false),
        // Otherwise a program with setuid, such as `su`, could make root of any user.
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        ..Default::default()
    }
}

fn ulimit((name, limit): (&String, &Ulimit)) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.clone()), soft: Some(limit.soft), hard: Some(limit.hard) }
}

fn tmpfs(entry: &str) -> (String, String) {
    let (path, options) = entry.split_once(':').unwrap_or((entry, ""));
    (path.to_owned(), options.to_owned())
}

fn port_key(port: &Port) -> String {
    format!("{}/{}", port.container, port.protocol.as_str())
}

/// Loopback unless an address is given: no port is exposed by omission.
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
    use crate::MountedFile;
    use crate::testing::identity;

    fn host_config_of(json: &str) -> HostConfig {
        let container = serde_json::from_str(json).unwrap();
        let request = ContainerRequest::new(identity("node", "pod", "assignment"), container);
        create_body(&request, &["NET_RAW".to_owned()], None).host_config.unwrap()
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
    fn limits_are_always_set() {
        let plain = host_config_of(r#"{"image":"x"}"#);
        assert_eq!(plain.pids_limit, Some(4096));
        assert_eq!((plain.cap_drop, plain.cap_add), (Some(vec!["NET_RAW".to_owned()]), None));
        assert_eq!(plain.security_opt, Some(vec!["no-new-privileges".to_owned()]));
        assert_eq!(plain.restart_policy.unwrap().name, Some(RestartPolicyNameEnum::NO));
        assert_eq!(plain.log_config.unwrap().config.unwrap()["max-size"], "10000000");
        assert_eq!((plain.memory, plain.nano_cpus), (None, None));
        let limited = host_config_of(r#"{"image":"x","memory":"64MiB","cpus":0.5}"#);
        assert_eq!((limited.memory, limited.memory_swap), (Some(64 << 20), Some(64 << 20)));
        assert_eq!(limited.nano_cpus, Some(500_000_000));
    }

    #[test]
    fn every_field_reaches_the_engine() {
        let json = r#"{"image":"x","entrypoint":"sh -c","command":["a"],"working_dir":"/srv","user":"1000:1000",
            "pids_limit":50,"ulimits":{"nofile":{"soft":1,"hard":2},"core":0},"read_only":true,
            "tmpfs":["/run","/tmp:size=64m"],
            "volumes":["data:/var:ro","/cache",{"type":"tmpfs","target":"/m","tmpfs":{"size":"1m"}}],
            "cap_drop":["ALL"],"init":true,"stdin_open":true,"stdin_once":true,"tty":true,"stop_signal":"QUIT","hostname":"mail","memory":"64m",
            "environment":{"MODE":"fast"},"ports":["8080:80"],"cpus":0.5,
            "memory_reservation":"32m","logging":{"driver":"local","options":{"max-size":"1m","max-file":2}}}"#;
        let container = serde_json::from_str(json).unwrap();
        let request = ContainerRequest::new(identity("node", "pod", "assignment"), container);
        let body = create_body(&request, &["NET_RAW".to_owned()], None);
        assert_eq!(body.entrypoint, Some(vec!["sh".to_owned(), "-c".to_owned()]));
        assert_eq!(body.cmd, Some(vec!["a".to_owned()]));
        assert_eq!((body.image.as_deref(), body.env), (Some("x"), Some(vec!["MODE=fast".to_owned()])));
        assert_eq!(body.exposed_ports, Some(vec!["80/tcp".to_owned()]));
        assert_eq!((body.working_dir.as_deref(), body.user.as_deref()), (Some("/srv"), Some("1000:1000")));
        assert_eq!((body.stop_signal.as_deref(), body.hostname.as_deref()), (Some("SIGQUIT"), Some("mail")));
        assert_eq!((body.open_stdin, body.stdin_once, body.tty), (Some(true), Some(true), Some(true)));
        let host = body.host_config.unwrap();
        assert_eq!((host.pids_limit, host.readonly_rootfs, host.init), (Some(50), Some(true), Some(true)));
        assert_eq!(host.cap_drop, Some(vec!["NET_RAW".to_owned(), "ALL".to_owned()]));
        assert_eq!((host.memory, host.memory_reservation), (Some(64 << 20), Some(32 << 20)));
        assert_eq!(host.nano_cpus, Some(500_000_000));
        assert!(host.port_bindings.unwrap().contains_key("80/tcp"));
        let log = host.log_config.unwrap();
        let options = log.config.unwrap();
        assert_eq!(
            (log.typ.as_deref(), options["max-size"].as_str(), options["max-file"].as_str()),
            (Some("local"), "1048576", "2")
        );
        let mounts: Vec<_> = host
            .mounts
            .unwrap()
            .into_iter()
            .map(|m| {
                (
                    m.typ.unwrap().to_string(),
                    m.target.unwrap(),
                    m.read_only.unwrap(),
                    m.volume_options.is_some(),
                )
            })
            .collect();
        let mount = |kind: &str, target: &str, read_only, has_labels| {
            (kind.to_owned(), target.to_owned(), read_only, has_labels)
        };
        let expected = [
            mount("volume", "/var", true, true),
            mount("volume", "/cache", false, true),
            mount("tmpfs", "/m", false, false),
        ];
        assert_eq!(mounts, expected);
        let tmpfs = host.tmpfs.unwrap();
        assert_eq!((tmpfs["/run"].as_str(), tmpfs["/tmp"].as_str()), ("", "size=64m"));
        let ulimits: Vec<_> = host
            .ulimits
            .unwrap()
            .into_iter()
            .map(|u| (u.name.unwrap(), u.soft.unwrap(), u.hard.unwrap()))
            .collect();
        assert_eq!(ulimits, [("core".to_owned(), 0, 0), ("nofile".to_owned(), 1, 2)]);
    }

    #[test]
    fn files_are_mounted_read_only() {
        let mut request = ContainerRequest::new(
            identity("node", "pod", "assignment"),
            model::spec::ContainerSpec::from_image("x"),
        );
        request.files.push(MountedFile { source: "/m/0-db".into(), target: "/run/secrets/db".to_owned() });
        let mounts = create_body(&request, &[], None).host_config.unwrap().mounts.unwrap();
        let [mount] = mounts.as_slice() else { panic!("{mounts:?}") };
        assert_eq!(
            (mount.source.as_deref(), mount.target.as_deref()),
            (Some("/m/0-db"), Some("/run/secrets/db"))
        );
        assert_eq!((mount.read_only, mount.typ), (Some(true), Some(bollard::models::MountType::BIND)));
    }

    #[test]
    fn one_of_several_containers_has_the_network_of_its_sandbox_and_publishes_nothing() {
        let container = serde_json::from_str(r#"{"image":"x","ports":["8080:80"]}"#).unwrap();
        let identity = identity("node", "pod", "assignment");
        let request = ContainerRequest {
            identity,
            container,
            sandbox: Some("id".to_owned()),
            files: Vec::new(),
            volume_epochs: Default::default(),
        };
        let body = create_body(&request, &[], None);
        assert_eq!(body.exposed_ports, Some(Vec::new()));
        let host = body.host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("container:id"));
        assert_eq!(host.port_bindings, Some(PortMap::new()));
    }

    #[test]
    fn an_empty_command_keeps_the_images_own() {
        let container = model::spec::ContainerSpec::from_image("x");
        let request = ContainerRequest::new(identity("node", "pod", "assignment"), container);
        let body = create_body(&request, &[], None);
        assert_eq!((body.cmd, body.entrypoint), (None, None));
        assert_eq!(body.healthcheck.unwrap().test, Some(vec!["NONE".to_owned()]), "the worker checks");
        assert_eq!(body.labels.unwrap()["kubeleet.pod"], "pod");
    }
}
