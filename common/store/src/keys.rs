//! All key names. `docs/reference/redis.md` lists type, writer and readers of each.

use model::ids::{
    NodeName, PodId, RegistryHost, RequestId, SchedulerId, ServiceName, SpecId, ValueName, VolumeName,
};
use model::value::ValueKind;

pub(crate) const EVENTS: &str = "events";
pub(crate) const DECISIONS: &str = "decisions";
pub(crate) const META: &str = "meta";
pub(crate) const SQ: &str = "sq";
pub(crate) const DQ: &str = "dq";
pub(crate) const UQ: &str = "uq";
pub(crate) const UQ_AT: &str = "uq:at";
pub(crate) const UQ_WHY: &str = "uq:why";
pub(crate) const UQ_CLASS: &str = "uq:class";
pub(crate) const UQ_BY_CLASS: &str = "uq:by_class";
pub(crate) const SERVICES: &str = "services";
pub(crate) const DELETED_SERVICES: &str = "services:deleted";
pub(crate) const UNCONFIRMED: &str = "unconfirmed";
pub(crate) const PUSHED: &str = "pushed";
pub(crate) const FORMER_SPECS: &str = "former_specs";
pub(crate) const NODES: &str = "nodes";
pub(crate) const HELD: &str = "held";
pub(crate) const BEATS: &str = "beats";
pub(crate) const SCHEDULERS: &str = "schedulers";
pub(crate) const RECOVERY: &str = "recovery";
pub(crate) const SECRETS: &str = "secrets";
pub(crate) const CONFIGS: &str = "configs";
pub(crate) const VOLUMES: &str = "volumes";
pub(crate) const VOLUME_REPORTS: &str = "volumes:reports";
pub(crate) const ABANDONED_VOLUMES: &str = "volumes:abandoned";
pub(crate) const VOLUME_COPIES: &str = "volumes:copies";
pub(crate) const GIVEN_UP_VOLUMES: &str = "volumes:given_up";
pub(crate) const VOLUME_PROBLEMS: &str = "volumes:problems";
pub(crate) const ROLLOUTS: &str = "rollouts";
pub(crate) const REGISTRIES: &str = "registries";
pub(crate) const ROUTES: &str = "routes";
pub(crate) const RELATIONS: &str = "relations";
pub(crate) const PROXIES: &str = "proxies";
pub(crate) const ADDRESSES: &str = "addresses";
pub(crate) const FREED_ADDRESSES: &str = "addresses:free";
pub(crate) const USAGE_WANTED: &str = "usage_wanted";
pub(crate) const ACME_ACCOUNTS: &str = "acme_accounts";

macro_rules! keys {
    ($($name:ident($type:ty) = $prefix:literal;)*) => {
        $(
            pub(crate) fn $name(of: &$type) -> String {
                format!(concat!($prefix, "{}"), of)
            }
        )*

        #[cfg(test)]
        const PREFIXES: &[&str] = &[$($prefix),*];
    };
}

keys! {
    pq(NodeName) = "pq:";
    rq(NodeName) = "rq:";
    cs(NodeName) = "cs:";
    hb(NodeName) = "hb:";
    node(NodeName) = "node:";
    stop(NodeName) = "stop:";
    prepared(SpecId) = "prepared:";
    requests(NodeName) = "xr:";
    channel_record(RequestId) = "xs:";
    channel_input(RequestId) = "xi:";
    channel_output(RequestId) = "xo:";
    pod(PodId) = "pod:";
    service(ServiceName) = "service:";
    slots(ServiceName) = "slots:";
    history(ServiceName) = "history:";
    spec(SpecId) = "spec:";
    in_flight(SchedulerId) = "fq:";
    scheduler(SchedulerId) = "scheduler:";
    scheduler_forms(SchedulerId) = "scheduler_forms:";
    lease(str) = "lease:";
    recovery(NodeName) = "recovery:";
    secret(ValueName) = "secret:";
    config(ValueName) = "config:";
    registry(RegistryHost) = "registry:";
    certificate(str) = "certificate:";
    volume(VolumeName) = "volume:";
    endpoints(ServiceName) = "ep:";
    removals(NodeName) = "rv:";
    reported_volumes(NodeName) = "vs:";
    usage(NodeName) = "usage:";
    usage_wanted(NodeName) = "usage_wanted:";
    done(ServiceName) = "done:";
    tries(ServiceName) = "tries:";
    runs(ServiceName) = "runs:";
    aside(str) = "broken:";
}

pub(crate) const CLUSTER_WIDE: [&str; 37] = [
    EVENTS,
    DECISIONS,
    META,
    SQ,
    DQ,
    UQ,
    UQ_AT,
    UQ_WHY,
    UQ_CLASS,
    UQ_BY_CLASS,
    SERVICES,
    DELETED_SERVICES,
    UNCONFIRMED,
    PUSHED,
    FORMER_SPECS,
    NODES,
    HELD,
    BEATS,
    SCHEDULERS,
    RECOVERY,
    SECRETS,
    CONFIGS,
    VOLUMES,
    VOLUME_REPORTS,
    ABANDONED_VOLUMES,
    VOLUME_COPIES,
    GIVEN_UP_VOLUMES,
    VOLUME_PROBLEMS,
    ROLLOUTS,
    REGISTRIES,
    ROUTES,
    RELATIONS,
    PROXIES,
    ADDRESSES,
    FREED_ADDRESSES,
    USAGE_WANTED,
    ACME_ACCOUNTS,
];

/// Only its record cannot be rebuilt.
pub(crate) fn queues_of_node(node: &NodeName) -> [String; 5] {
    [pq(node), rq(node), cs(node), hb(node), stop(node)]
}

/// Returns `None` for foreign keys.
pub(crate) fn type_of(key: &str) -> Option<&'static str> {
    Some(match key {
        EVENTS | DECISIONS => "stream",
        META | UQ | UQ_WHY | UQ_CLASS | UNCONFIRMED | HELD | VOLUME_REPORTS | ABANDONED_VOLUMES
        | VOLUME_COPIES | ROLLOUTS | ROUTES | RELATIONS | PROXIES | ADDRESSES | ACME_ACCOUNTS => "hash",
        SQ | DQ => "list",
        UQ_AT | UQ_BY_CLASS | BEATS | SCHEDULERS | FREED_ADDRESSES | GIVEN_UP_VOLUMES | DELETED_SERVICES => {
            "zset"
        }
        SERVICES | PUSHED | NODES | FORMER_SPECS | SECRETS | CONFIGS | VOLUMES | VOLUME_PROBLEMS
        | REGISTRIES => "set",
        RECOVERY | USAGE_WANTED => "string",
        _ => match key.split_once(':')?.0 {
            "pq" | "rq" | "fq" | "xr" | "recovery" => "list",
            "cs" | "stop" | "rv" | "vs" => "set",
            "hb" | "spec" | "lease" | "scheduler" | "scheduler_forms" | "usage" | "usage_wanted" => "string",
            "node" | "pod" | "service" | "slots" | "history" | "xs" => "hash",
            "secret" | "config" | "registry" | "certificate" | "volume" | "ep" | "done" | "tries"
            | "prepared" => "hash",
            "runs" => "zset",
            "xi" | "xo" => "stream",
            _ => return None,
        },
    })
}

pub(crate) fn wanted(service: Option<&ServiceName>) -> String {
    service.map_or_else(|| PUSHED.to_owned(), slots)
}

/// Returns a placeholder without service.
pub(crate) fn endpoints_of(service: Option<&ServiceName>) -> String {
    service.map_or_else(|| "ep:".to_owned(), endpoints)
}

/// Returns record, completions and failures of a job; placeholders without service.
pub(crate) fn counted_in(service_name: Option<&ServiceName>) -> [String; 3] {
    let of = |key: fn(&ServiceName) -> String, none: &str| service_name.map_or_else(|| none.to_owned(), key);
    [of(service, "service:"), of(done, "done:"), of(tries, "tries:")]
}

pub(crate) fn value(kind: ValueKind, name: &ValueName) -> String {
    match kind {
        ValueKind::Secret => secret(name),
        ValueKind::Config => config(name),
    }
}

pub(crate) fn value_names(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Secret => SECRETS,
        ValueKind::Config => CONFIGS,
    }
}

/// Pub/sub channels. Messages are hints: missing one only causes a delay.
pub mod channel {
    use model::ids::{NodeName, ServiceName};

    /// Capacity may have appeared.
    pub const SCHEDULER: &str = "wake:scheduler";
    /// The message is the changed service, `created <name>` if the sender creates its pods itself, or
    /// `node <name>` of a node that global services may now want, or not any more.
    pub const RECONCILE: &str = "wake:reconcile";

    /// The message is a node that is to be drained.
    pub const MOVES: &str = "wake:moves";

    /// The message is the service that has or had the changed routes.
    pub const ROUTES: &str = "wake:routes";

    pub const PROXIES: &str = "wake:proxies";

    /// The message is the host.
    pub const CERTIFICATES: &str = "wake:certificates";

    /// No process listens.
    pub const PROBE: &str = "wake:probe";

    /// The message is the node, or `*` for all.
    pub const USAGE: &str = "wake:usage";

    /// The message is a [`crate::EndpointChange`].
    pub fn endpoints(service: &ServiceName) -> String {
        format!("ep:{service}")
    }

    /// The message is a [`crate::WorkerHint`].
    pub fn worker(node: &NodeName) -> String {
        format!("wake:{node}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_says_what_bounds_each_key() {
        let source = include_str!("keys.rs");
        let constants = source
            .lines()
            .filter(|line| line.starts_with("pub(crate) const ") && line.contains(": &str "))
            .count();
        assert_eq!(constants, CLUSTER_WIDE.len(), "every constant is listed in CLUSTER_WIDE");
        let page = include_str!("../../../docs/reference/redis.md");
        let section = page.split("## What bounds each key").nth(1).expect("the section exists");
        let rows = section.split("\n## ").next().unwrap_or_default().lines();
        let cells = rows.filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
        let mut documented: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let mut known: Vec<&str> = PREFIXES.iter().chain(&CLUSTER_WIDE).copied().collect();
        documented.sort_unstable();
        known.sort_unstable();
        assert_eq!(documented, known);
        let untyped: Vec<&str> = known.into_iter().filter(|key| type_of(key).is_none()).collect();
        assert_eq!(untyped, ["broken:"], "keys of any type");
    }
}
