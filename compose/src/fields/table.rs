//! Rows in the order of the schema's groups.

use super::row::How::{Parts, Reading, Translated};
use super::row::Support::{Declares, Honoured, NotHonoured, Refused};
use super::row::{FieldRow, How};
use crate::translate::{self as to, Translate};

const fn honoured(path: &'static str, translate: Translate, advice: &'static str) -> FieldRow {
    FieldRow { path, support: Honoured(Translated(translate)), advice }
}

const fn known(path: &'static str, how: How, advice: &'static str) -> FieldRow {
    FieldRow { path, support: Honoured(how), advice }
}

const fn refused(path: &'static str, advice: &'static str) -> FieldRow {
    FieldRow { path, support: Refused, advice }
}

const fn not_honoured(path: &'static str, advice: &'static str) -> FieldRow {
    FieldRow { path, support: NotHonoured, advice }
}

const fn declares(path: &'static str, advice: &'static str) -> FieldRow {
    FieldRow { path, support: Declares, advice }
}

const AT_USE: &str = "noted where a service uses it";
const NO_NETWORKS: &str = "all pods of a cluster are in one network, and reach services by name";
const ONE_NETWORK: &str = "the pods of a host are in one network, and reach services by name";
const NO_LABELS: &str = "secrets and configs have no labels";
const NO_DRIVER: &str = "the cluster stores the content as it is in the file";
const NO_DEVICES: &str = "containers get no devices; remove it, or run this service elsewhere";
const NO_NAMESPACES: &str = "containers share no namespace with the machine or with each other; remove it";
const NO_PRIVILEGES: &str =
    "containers get no privileges beyond the default; remove it, or use another image";
const ENGINE: &str = "kubeleet leaves it to the engine's default";
const LIMIT_RESERVES: &str = "kubeleet reserves the limit";
const BUILD: &str = "kubeleet runs images that exist: build and push it, and name it in `image`";

pub(crate) static TABLE: &[FieldRow] = &[
    // Top level
    known("version", Reading, "has no effect, as with Compose"),
    known("name", Reading, "the name of the app; without it, the folder's"),
    known("include", Reading, ""),
    known("include.path", Reading, ""),
    known("include.env_file", Reading, ""),
    known("include.project_directory", Reading, ""),
    known("services", Parts, "each becomes a service `<app>-<name>`"),
    known(
        "networks",
        Reading,
        "services that have one in common reach each other by name; its options are noted",
    ),
    declares("volumes", AT_USE),
    known("secrets", Parts, "created with the app, and deleted with it"),
    known("secrets.*.file", Reading, ""),
    known("secrets.*.environment", Reading, ""),
    known("secrets.*.external", Reading, "one that the cluster has; `kubeleet secret create` creates it"),
    known("secrets.*.name", Reading, "its name in the cluster; without it `<app>-<name>`"),
    not_honoured("secrets.*.labels", NO_LABELS),
    not_honoured("secrets.*.driver", NO_DRIVER),
    not_honoured("secrets.*.driver_opts", NO_DRIVER),
    not_honoured("secrets.*.template_driver", NO_DRIVER),
    known("configs", Parts, "created with the app, and deleted with it"),
    known("configs.*.file", Reading, ""),
    known("configs.*.environment", Reading, ""),
    known("configs.*.content", Reading, ""),
    known("configs.*.external", Reading, "one that the cluster has; `kubeleet config create` creates it"),
    known("configs.*.name", Reading, "its name in the cluster; without it `<app>-<name>`"),
    not_honoured("configs.*.labels", NO_LABELS),
    not_honoured("configs.*.template_driver", NO_DRIVER),
    declares("models", AT_USE),
    // Image and command
    honoured("services.*.image", to::copied, ""),
    not_honoured("services.*.build", BUILD),
    honoured("services.*.entrypoint", to::arguments, "an empty one leaves the image's"),
    honoured("services.*.command", to::arguments, "an empty one leaves the image's"),
    honoured("services.*.env_file", to::env_file, ""),
    known("services.*.env_file.path", Reading, ""),
    known("services.*.env_file.required", Reading, ""),
    known("services.*.env_file.format", Reading, "`raw`, or none"),
    honoured(
        "services.*.environment",
        to::environment,
        "a variable without a value takes that of your shell",
    ),
    honoured("services.*.working_dir", to::copied, ""),
    honoured("services.*.user", to::copied, ""),
    not_honoured("services.*.group_add", "give the group in `user`: 1000:1000"),
    honoured("services.*.init", to::unquoted, ""),
    honoured("services.*.tty", to::unquoted, "`kubeleet attach -it` reaches it"),
    honoured("services.*.stdin_open", to::unquoted, "`kubeleet attach -i` reaches it"),
    not_honoured("services.*.platform", "the engine takes the image for its own platform"),
    not_honoured("services.*.runtime", ENGINE),
    not_honoured("services.*.isolation", "kubeleet runs Linux containers"),
    honoured(
        "services.*.pull_policy",
        to::pull_policy,
        "always, missing, if_not_present and never; not the times",
    ),
    not_honoured("services.*.pull_refresh_after", "an image is pulled where it is missing"),
    not_honoured("services.*.provider", "kubeleet runs images only; start it by itself"),
    not_honoured("services.*.develop", "it is for developing with Compose"),
    not_honoured("services.*.models", "kubeleet runs no models; run an image that serves one"),
    not_honoured("services.*.post_start", "run it in the image's entry point"),
    honoured(
        "services.*.pre_stop",
        to::pre_stop,
        "`command`, as the container's user and in its directory, within the grace period",
    ),
    known("services.*.pre_stop.command", Reading, ""),
    not_honoured("services.*.pre_stop.user", "the command runs as the container's user"),
    not_honoured("services.*.pre_stop.privileged", NO_PRIVILEGES),
    not_honoured("services.*.pre_stop.working_dir", "begin the command with a `cd` in a shell"),
    not_honoured("services.*.pre_stop.environment", "the command has the container's environment"),
    // Lifecycle
    honoured(
        "services.*.restart",
        to::restart,
        "without it a container is restarted when it fails; a number of tries is not honoured",
    ),
    honoured("services.*.stop_signal", to::copied, ""),
    honoured("services.*.stop_grace_period", to::copied, "in whole seconds"),
    honoured(
        "services.*.depends_on",
        to::depends_on,
        "the first start of a pod waits, and the next one after its machine was down",
    ),
    known("services.*.depends_on.*.condition", Reading, "see depends_on"),
    known("services.*.depends_on.*.required", Reading, ""),
    not_honoured("services.*.depends_on.*.restart", "a change of one service restarts no other one"),
    honoured(
        "services.*.healthcheck",
        to::healthcheck,
        "without `test`, the image's own check with these times",
    ),
    known("services.*.profiles", Reading, ""),
    known("services.*.extends", Reading, ""),
    known("services.*.extends.service", Reading, ""),
    known("services.*.extends.file", Reading, ""),
    honoured("services.*.scale", to::replicas, ""),
    known("services.*.attach", Reading, "has no effect: `apply` shows no output of services"),
    // Resources
    honoured("services.*.cpus", to::cpus, "limit and reservation"),
    honoured("services.*.mem_limit", to::memory, "limit and reservation"),
    honoured(
        "services.*.mem_reservation",
        to::memory_reservation,
        "the reserved memory; without it, the limit",
    ),
    not_honoured("services.*.memswap_limit", ENGINE),
    not_honoured("services.*.mem_swappiness", ENGINE),
    honoured("services.*.pids_limit", to::pids_limit, "from 1 to 4096; -1 is the node's own limit"),
    honoured("services.*.ulimits", to::ulimits, ""),
    known("services.*.ulimits.*.soft", Reading, ""),
    known("services.*.ulimits.*.hard", Reading, ""),
    not_honoured("services.*.cpu_count", "write `cpus`"),
    not_honoured("services.*.cpu_percent", "write `cpus`"),
    not_honoured("services.*.cpu_shares", "write `cpus`"),
    not_honoured("services.*.cpu_quota", "write `cpus`"),
    not_honoured("services.*.cpu_period", "write `cpus`"),
    not_honoured("services.*.cpu_rt_period", "write `cpus`"),
    not_honoured("services.*.cpu_rt_runtime", "write `cpus`"),
    not_honoured("services.*.cpuset", "write `cpus`"),
    not_honoured("services.*.blkio_config", ENGINE),
    not_honoured("services.*.storage_opt", ENGINE),
    not_honoured("services.*.shm_size", "mount a directory in memory: `tmpfs: [\"/dev/shm:size=256m\"]`"),
    // Files
    honoured(
        "services.*.volumes",
        to::volumes,
        "each replica has its own, or services share one if the cluster can; for files see the how-to",
    ),
    not_honoured("services.*.volumes_from", "only the containers of one pod share a volume"),
    honoured("services.*.tmpfs", to::copied, ""),
    honoured("services.*.read_only", to::unquoted, ""),
    honoured("services.*.secrets", to::secrets, "`uid` and `gid` need workers that run as root"),
    honoured("services.*.configs", to::configs, "`uid` and `gid` need workers that run as root"),
    // Network
    honoured("services.*.ports", to::ports, "without an address, on the node's loopback only"),
    known("services.*.ports.target", Reading, ""),
    known("services.*.ports.published", Reading, ""),
    known("services.*.ports.host_ip", Reading, ""),
    known("services.*.ports.protocol", Reading, "tcp or udp"),
    known("services.*.ports.name", Reading, "has no effect, as with Compose"),
    known("services.*.ports.app_protocol", Reading, "has no effect, as with Compose"),
    known("services.*.ports.mode", Reading, "a port is always that of one pod (`host`)"),
    not_honoured(
        "services.*.expose",
        "pods reach each other by name on any port; publish in `ports` what the outside is to reach",
    ),
    known(
        "services.*.networks",
        Reading,
        "says which services reach this one by name; not honoured for an external one",
    ),
    known(
        "services.*.networks.*.aliases",
        Reading,
        "names by which the services of the app reach this one; each leads to one service",
    ),
    not_honoured("services.*.networks.*.interface_name", ONE_NETWORK),
    not_honoured("services.*.networks.*.ipv4_address", ONE_NETWORK),
    not_honoured("services.*.networks.*.ipv6_address", ONE_NETWORK),
    not_honoured("services.*.networks.*.link_local_ips", ONE_NETWORK),
    not_honoured("services.*.networks.*.mac_address", ONE_NETWORK),
    not_honoured("services.*.networks.*.driver_opts", ONE_NETWORK),
    not_honoured("services.*.networks.*.priority", ONE_NETWORK),
    not_honoured("services.*.networks.*.gw_priority", ONE_NETWORK),
    honoured(
        "services.*.network_mode",
        to::network_mode,
        "`host` and that of a container are refused; `none`, too, unless allowed",
    ),
    known(
        "services.*.links",
        Reading,
        "the service starts later; the alias is a name for all services of the app",
    ),
    not_honoured("services.*.external_links", NO_NETWORKS),
    honoured("services.*.hostname", to::hostname, "the same for all replicas; `_` becomes `-`"),
    not_honoured("services.*.domainname", "a container is called after its pod"),
    not_honoured(
        "services.*.container_name",
        "containers are named after their pods; the services of the app reach this one by that name",
    ),
    not_honoured("services.*.mac_address", ENGINE),
    not_honoured("services.*.extra_hosts", "use names that the network's DNS knows"),
    not_honoured("services.*.dns", ENGINE),
    not_honoured("services.*.dns_opt", ENGINE),
    not_honoured("services.*.dns_search", ENGINE),
    // Labels and logs
    honoured(
        "services.*.labels",
        to::labels,
        "labels of the service; the engine's container does not have them",
    ),
    known("services.*.x-kubeleet", Parts, "fields of kubeleet that Compose does not have"),
    honoured(
        "services.*.x-kubeleet.ingress",
        to::ingress,
        "the `ingress` of a service; without the field, a service keeps what it has",
    ),
    honoured("services.*.x-kubeleet.stateful", to::stateful, "whether each pod is known by its number"),
    honoured(
        "services.*.x-kubeleet.resources",
        to::resources,
        "how many ids of named resources each pod gets",
    ),
    honoured("services.*.x-kubeleet.scheduler", to::copied, "the `scheduler` of a service: its profile"),
    known("services.*.x-kubeleet.placement", Parts, "rules that Compose does not have"),
    honoured("services.*.x-kubeleet.placement.affinity", to::relations, "services near whose pods it runs"),
    honoured(
        "services.*.x-kubeleet.placement.anti_affinity",
        to::relations,
        "services away from whose pods it runs",
    ),
    honoured("services.*.x-kubeleet.min_available", to::copied, "the `min_available` of a service"),
    honoured("services.*.x-kubeleet.priority", to::copied, "the `priority` of a service"),
    honoured("services.*.x-kubeleet.preemption", to::copied, "the `preemption` of a service"),
    not_honoured("services.*.label_file", "write them in `labels`"),
    not_honoured("services.*.annotations", "write them in `labels`"),
    honoured(
        "services.*.logging",
        to::logging,
        "`max-size` and `max-file` of `json-file` and `local`; others are noted",
    ),
    // Privileges
    honoured("services.*.cap_drop", to::copied, ""),
    refused("services.*.cap_add", NO_PRIVILEGES),
    refused("services.*.privileged", NO_PRIVILEGES),
    honoured(
        "services.*.security_opt",
        to::security_opt,
        "`no-new-privileges` is always on; `label` is not honoured; others are refused",
    ),
    refused("services.*.sysctls", NO_PRIVILEGES),
    refused("services.*.devices", NO_DEVICES),
    refused("services.*.device_cgroup_rules", NO_DEVICES),
    refused("services.*.gpus", NO_DEVICES),
    refused("services.*.use_api_socket", NO_PRIVILEGES),
    refused("services.*.credential_spec", NO_PRIVILEGES),
    honoured("services.*.cgroup", to::only_private, "`private`; others are refused"),
    refused("services.*.cgroup_parent", NO_NAMESPACES),
    honoured("services.*.ipc", to::only_private, "`private`; others are refused"),
    refused("services.*.pid", NO_NAMESPACES),
    refused("services.*.uts", NO_NAMESPACES),
    refused("services.*.userns_mode", NO_NAMESPACES),
    refused("services.*.oom_kill_disable", NO_PRIVILEGES),
    honoured("services.*.oom_score_adj", to::oom_score_adj, "not honoured; a negative one is refused"),
    // Deployment
    known("services.*.deploy", Parts, ""),
    honoured(
        "services.*.deploy.mode",
        to::deploy_mode,
        "`replicated` or `global`; others are refused unless allowed",
    ),
    honoured("services.*.deploy.replicas", to::replicas, ""),
    honoured("services.*.deploy.labels", to::labels, "win over `labels`"),
    known("services.*.deploy.resources", Parts, ""),
    known("services.*.deploy.resources.limits", Parts, ""),
    honoured("services.*.deploy.resources.limits.cpus", to::cpus, "as `cpus`"),
    honoured("services.*.deploy.resources.limits.memory", to::memory, "as `mem_limit`"),
    honoured("services.*.deploy.resources.limits.pids", to::pids_limit, "as `pids_limit`"),
    known("services.*.deploy.resources.reservations", Parts, ""),
    not_honoured("services.*.deploy.resources.reservations.cpus", LIMIT_RESERVES),
    honoured(
        "services.*.deploy.resources.reservations.memory",
        to::memory_reservation,
        "as `mem_reservation`",
    ),
    honoured(
        "services.*.deploy.resources.reservations.generic_resources",
        to::generic_resources,
        "as `resources`: ids that nodes declare; a `kind` is written in lower case",
    ),
    honoured(
        "services.*.deploy.resources.reservations.devices",
        to::device_requests,
        "`count` as `resources: {gpu: 1}`, by the name in `capabilities`; containers get no device, only ids",
    ),
    known("services.*.deploy.restart_policy", Parts, "wins over `restart`"),
    honoured("services.*.deploy.restart_policy.condition", to::restart_condition, ""),
    not_honoured("services.*.deploy.restart_policy.delay", "the pause between restarts grows by itself"),
    not_honoured("services.*.deploy.restart_policy.max_attempts", "a container is restarted without an end"),
    not_honoured("services.*.deploy.restart_policy.window", "the pause between restarts grows by itself"),
    not_honoured("services.*.deploy.endpoint_mode", NO_NETWORKS),
    honoured("services.*.deploy.update_config", to::update_config, "as `update`"),
    honoured(
        "services.*.deploy.rollback_config",
        to::rollback_config,
        "as `update.rollback`; it is not judged",
    ),
    known("services.*.deploy.placement", Parts, ""),
    honoured("services.*.deploy.placement.constraints", to::constraints, "of labels and names of nodes"),
    honoured(
        "services.*.deploy.placement.preferences",
        to::placement_preferences,
        "as `placement.spread`, besides different zones and nodes",
    ),
    honoured(
        "services.*.deploy.placement.max_replicas_per_node",
        to::max_replicas_per_node,
        "as `placement.max_per_node`",
    ),
];
