//! OpenAPI schemas of names and of values with several spellings, and the JSON Schema of a service. The
//! parsers in [`crate::ids`] and [`crate::spec`] decide; patterns repeat their rules for clients.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::ids::{
    AppName, AssignmentId, ContainerName, LockId, NodeName, PodId, PodName, RegistryHost, ServiceName,
    ValueName, VolumeName,
};
use crate::node::ResourceIds;
use crate::spec::{
    Aliases, AllowFrom, Command, ContainerSpec, Cpus, DependsOn, Environment, FileReference, HealthTest,
    HttpHeaders, MAX_MEMORY_BYTES, MAX_REPLICAS, Memory, Milliseconds, MinAvailable, NameAndReplicas,
    NamedRequest, Period, PodSpec, Port, Priority, REPLICAS_NAMES, Seconds, ServiceFields, ServiceInput,
    Stateful, StatusCodes, StopSignal, TextList, Ulimit, VolumeMount,
};
use crate::value::ValueBytes;

/// Exact as a floating point number.
const MAX_ULIMIT: u64 = 1 << 62;
const CONTAINER_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
/// Or an absolute path without parts such as `..`.
const TARGET: &str = r"^(/?[A-Za-z0-9_][^/\x00]*|(/[A-Za-z0-9_][^/\x00]*){1,32})$";
const VOLUME_SOURCE: &str = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}";
const HOST_PATH: &str = r"(/[A-Za-z0-9_][^/:\x00]*){1,32}";
const SIGNAL: &str = "^((SIG)?(HUP|INT|QUIT|ILL|TRAP|ABRT|BUS|FPE|KILL|USR1|SEGV|USR2|PIPE|ALRM|TERM|STKFLT|CHLD|CONT\
                      |STOP|TSTP|TTIN|TTOU|URG|XCPU|XFSZ|VTALRM|PROF|WINCH|IO|PWR|SYS|RTMIN(\\+([1-9]|[12][0-9]|30))?)\
                      |[1-9]|[1-5][0-9]|6[0-4])$";
const BYTES: &str = "^([0-9]{1,15}|[0-9]{1,9}(\\.[0-9]{1,3})?[kKmMgGtT]([iI]?[bB])?)$";
const SECONDS_OF_A_DAY: &str = "([0-9]{1,4}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400)";
const HOURS: &str = "([0-9]|1[0-9]|2[0-3])";
const SIXTY: &str = "[1-5]?[0-9]";
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const RESOURCE_NAME: &str = "^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$";
const STATUS_RANGE: &str = "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$";
const STATUSES: &str = "^[1-5][0-9]{2}(-[1-5][0-9]{2})?(, ?[1-5][0-9]{2}(-[1-5][0-9]{2})?){0,15}$";
const PORT: &str = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";

macro_rules! schemas {
    ($($type:ident => $schema:expr;)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                parse($schema)
            }
        }

        impl ToSchema for $type {}
    )*};
}

schemas! {
    AppName => json!({
        "description": "Name of an app; a DNS label",
        "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    });
    ServiceName => json!({
        "type": "string", "description": "A DNS label, unique in the cluster", "example": "web",
        "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    });
    NodeName => json!({
        "type": "string", "description": "The name of a worker", "example": "worker1",
        "minLength": 1, "maxLength": 63, "pattern": CONTAINER_NAME,
    });
    PodName => json!({
        "type": "string", "description": "The first part of the container's name", "example": "web",
        "minLength": 1, "maxLength": 63, "pattern": CONTAINER_NAME,
    });
    PodId => json!({
        "type": "string",
        "description": "A version-4 UUID; a pod that was pushed by hand may have any other printable text",
        "example": "5cf3b8a1-7c0e-4c1f-9d2a-3f0d1f6f2b11",
        "minLength": 1, "maxLength": 128, "pattern": r"^[^\s\x00-\x1f\x7f-\x9f]+$",
    });
    VolumeName => json!({
        "type": "string", "description": "A volume: service, source and replica, or owner, source, and `shared` or `app`", "example": "web_data_0",
        "minLength": 1, "maxLength": 140, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,139}$",
    });
    AssignmentId => json!({
        "type": "string", "description": "One assignment of a pod to a node; compared by equality only",
        "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$",
    });
    LockId => json!({
        "type": "string", "description": "A random id, such as a version-4 UUID", "example": "5cf3b8a1",
        "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$",
    });
    Memory => json!({
        "type": ["integer", "string"],
        "description": "Bytes, or a text with a unit such as `64MiB`, `64m` or `1.5GB`; at least 6 MiB",
        "example": "64MiB",
        "minimum": 6 * 1024 * 1024, "maximum": MAX_MEMORY_BYTES,
        "pattern": BYTES,
    });
    Cpus => json!({
        "type": ["number", "string"],
        "description": "Cores: `0.5`, `2`, or `\"500m\"` for thousandths of a core; at least 0.01",
        "example": 0.5,
        "minimum": 0.01, "maximum": 100_000,
        "pattern": "^[0-9]{1,5}(\\.[0-9]{1,3})?m?$",
    });
    Seconds => json!({
        "type": ["integer", "string"],
        "description": "Seconds, or a text such as `30s` or `1m 30s`; at most a day",
        "example": "10s",
        "minimum": 0, "maximum": 86_400,
        "pattern": format!(
            "^({SECONDS_OF_A_DAY}|[0-9]{{1,4}}s|[0-9]{{1,3}}m( {SIXTY}s)?|{HOURS}h( {SIXTY}m)?( {SIXTY}s)?)$"
        ),
    });
    Milliseconds => json!({
        "type": ["number", "string"],
        "description": "Seconds, or a text such as `500ms`, `30s` or `1m30s`; at most a day",
        "example": "10s",
        "minimum": 0, "maximum": 86_400,
        "pattern": format!(
            "^({SECONDS_OF_A_DAY}|[0-9]{{1,7}}ms|[0-9]{{1,4}}s|[0-9]{{1,3}}m( ?{SIXTY}s)?|{HOURS}h( ?{SIXTY}m)?( ?{SIXTY}s)?)$"
        ),
    });
    Period => json!({
        "type": ["number", "string"],
        "description": "Seconds, or a text such as `500ms`, `30s`, `1h` or `7d`; at most ten years",
        "example": "1h",
        "minimum": 0, "maximum": 315_360_000,
        "pattern": format!(
            "^([0-9]{{1,8}}(\\.[0-9]{{1,3}})?|[0-9]{{1,10}}ms|[0-9]{{1,8}}s|[0-9]{{1,6}}m( ?{SIXTY}s)?|[0-9]{{1,4}}h( ?{SIXTY}m)?( ?{SIXTY}s)?|[0-9]{{1,3}}d( ?{HOURS}h)?)$"
        ),
    });
    MinAvailable => json!({
        "type": ["integer", "string"],
        "description": "A number of replicas, or a part of them such as `75%`",
        "example": "75%",
        "minimum": 0, "maximum": MAX_REPLICAS,
        "pattern": "^([0-9]{1,6}|1[0-9]{6}|2000000|(100|[0-9]{1,2})%)$",
    });
    Priority => json!({
        "type": ["integer", "string"],
        "description": "The higher, the earlier",
        "example": 10,
        "minimum": -Priority::MAX, "maximum": Priority::MAX,
        "pattern": "^[+-]?0*(1000|[0-9]{1,3})$",
    });
    HealthTest => json!({
        "description": "A text for the container's shell, or a list that begins with `CMD`, `CMD-SHELL` or `NONE`",
        "example": ["CMD", "pg_isready"],
        "anyOf": [
            {"type": "string"},
            {
                "type": "array", "minItems": 1,
                "prefixItems": [{"type": "string", "pattern": "^(CMD|CMD-SHELL|NONE)$"}],
                "items": {"type": "string"},
            },
        ],
    });
    StatusCodes => json!({
        "description": "Good statuses of an answer, by default 200 to 399",
        "example": "200-399",
        "anyOf": [
            {"type": "integer", "minimum": 100, "maximum": 599},
            {"type": "string", "pattern": STATUSES},
            {
                "type": "array", "minItems": 1, "maxItems": 16,
                "items": {"anyOf": [
                    {"type": "integer", "minimum": 100, "maximum": 599},
                    {"type": "string", "pattern": STATUS_RANGE},
                ]},
            },
        ],
    });
    HttpHeaders => json!({
        "type": "object",
        "description": "Headers of a request, by name",
        "example": {"Host": "web"},
        "maxProperties": 32,
        "propertyNames": {"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$"},
        "additionalProperties": {"type": "string", "pattern": "^[\\t -~]*$", "maxLength": 4096},
    });
    Command => json!({
        "description": "A list of words, or one text that is split like a shell would",
        "example": ["sleep", "60"],
        "anyOf": [
            {"type": "array", "items": {"type": "string"}},
            {"type": "string", "pattern": r#"^([^'"\\#]|'[^']*'|"([^"\\]|\\[\s\S])*"|\\[\s\S])*$"#},
        ],
    });
    TextList => json!({
        "description": "A list of texts, or one text",
        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}],
    });
    RegistryHost => json!({
        "type": "string", "description": "A registry, with its port if it has one",
        "example": "registry.example:5000", "minLength": 1, "maxLength": 255,
    });
    ValueName => json!({
        "type": "string", "description": "The name of a secret or config", "example": "db_password",
        "minLength": 1, "maxLength": 63, "pattern": CONTAINER_NAME,
    });
    ValueBytes => json!({"type": "string", "description": "The content of a secret or config", "writeOnly": true});
    FileReference => json!({
        "description": "The name of a secret or config, or a map that says which file it becomes",
        "example": "db_password",
        "anyOf": [
            {"type": "string", "pattern": CONTAINER_NAME},
            {
                "type": "object",
                "required": ["source"],
                "additionalProperties": false,
                "properties": {
                    "source": {
                        "type": "string", "pattern": CONTAINER_NAME,
                        "description": "The name of the secret or config",
                    },
                    "target": {
                        "type": ["string", "null"], "pattern": TARGET,
                        "description": "The file: an absolute path, or a name below /run/secrets (a config's: \
                                        below /); by default the source",
                    },
                    "uid": owner("The number of the user that owns the file"),
                    "gid": owner("The number of the group that owns the file"),
                    "mode": {
                        "description": "Octal digits of chmod(1), each 0 or one that can be read; by default 0444",
                        "anyOf": [
                            {"type": "string", "pattern": "^0?([4-7][04-7]{0,2})$"},
                            {"type": "null"},
                        ],
                    },
                    "on_change": {
                        "anyOf": [{"type": "string", "enum": ["restart", "signal", "none"]}, {"type": "null"}],
                        "description": "The effect of a change of the file on running pods: restart (the \
                                        default) replaces them step by step, signal replaces the file and sends \
                                        `signal` to the container, none leaves them as they are",
                    },
                    "signal": {
                        "description": "The name or the number of the signal; by default SIGHUP",
                        "anyOf": [
                            {"type": "integer", "minimum": 1, "maximum": 64},
                            {"type": "string", "pattern": SIGNAL},
                            {"type": "null"},
                        ],
                    },
                },
            },
        ],
    });
    StopSignal => json!({
        "description": "The name or the number of a signal",
        "example": "SIGQUIT",
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 64},
            {"type": "string", "pattern": SIGNAL},
        ],
    });
    Ulimit => json!({
        "description": "A limit of a resource; -1 is none",
        "example": 65536,
        "anyOf": [
            {"type": "integer", "minimum": -1, "maximum": MAX_ULIMIT},
            {
                "type": "object",
                "required": ["soft", "hard"],
                "additionalProperties": false,
                "properties": {
                    "soft": {"type": "integer", "minimum": -1, "maximum": MAX_ULIMIT},
                    "hard": {"type": "integer", "minimum": -1, "maximum": MAX_ULIMIT},
                },
            },
        ],
    });
    Stateful => json!({
        "description": "Whether each pod is known by its number: `true`, or a map",
        "example": true,
        "anyOf": [
            {"type": "boolean"},
            {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "by": {
                        "type": "string", "default": "zone", "pattern": r"^(node\.labels\.)?[^\s]{1,63}$",
                        "description": "The label of the nodes whose values are the zones, or `node.hostname`. Ordinals \
                                        go to the zones in turn; nodes without the label get none. If no node that \
                                        could run them has it, they go anywhere",
                    },
                    "zones": {
                        "type": ["integer", "null"], "minimum": 1, "maximum": 100_000,
                        "description": "While nodes of fewer zones could run them, new ordinals wait",
                    },
                    "start": {
                        "type": "string", "enum": ["ordered", "parallel"], "default": "ordered",
                        "description": "Whether a new ordinal starts when all lower ones are ready, or at once",
                    },
                },
            },
        ],
    });
    NamedRequest => json!({
        "type": "object",
        "description": "How many ids of each named resource, by the name that nodes declare",
        "example": {"gpu": 1},
        "maxProperties": ResourceIds::MAX_NAMES,
        "propertyNames": {
            "type": "string", "pattern": RESOURCE_NAME,
            "not": {"enum": ["cpu", "cpus", "memory", "pid", "pids", "disk", "port", "ports"]},
        },
        "additionalProperties": {"type": "integer", "minimum": 1, "maximum": ResourceIds::MAX_IDS},
    });
    VolumeMount => json!({
        "description": "A volume: `data:/var/lib/app` (persistent), `/cache` (local), `/srv/app:/app` (a path of \
                        the host, if the node allows it), or a map",
        "example": "data:/var/lib/app",
        "anyOf": [
            {"type": "string", "pattern": format!("^(({VOLUME_SOURCE}|{HOST_PATH}):)?/[^:\\x00]+(:(ro|rw))?$")},
            {
                "type": "object",
                "required": ["target"],
                "additionalProperties": false,
                "properties": {
                    "type": {
                        "type": "string", "enum": ["volume", "bind", "tmpfs"],
                        "description": "Its type in Compose; `kind` says more",
                    },
                    "kind": {
                        "type": "string", "enum": ["local", "persistent", "shared", "tmpfs", "bind"],
                        "description": "The lifetime of its data: it goes with the pod, it stays with the replica, it \
                                        is one for all pods of the service or app, it is in memory, or it is a path \
                                        of the host. Persistent if there is a name, or else local",
                    },
                    "source": {
                        "type": ["string", "null"], "pattern": format!("^({VOLUME_SOURCE}|{HOST_PATH})$"),
                        "description": "Its name in the service, or a path of the host",
                    },
                    "target": {"type": "string", "pattern": "^/[^:\\x00]+$", "description": "Its path in the container"},
                    "read_only": {
                        "type": "boolean", "default": false,
                        "description": "Whether the container may only read it",
                    },
                    "space": {
                        "type": ["integer", "string", "null"], "minimum": 0, "maximum": MAX_MEMORY_BYTES,
                        "description": "How much it is meant to hold: bytes, or a text such as `10G`",
                        "pattern": BYTES,
                    },
                    "uid": owner("The user that owns its folder when it is created; of the kinds persistent and local"),
                    "gid": owner("The group that owns its folder when it is created, and can write to it"),
                    "mode": {
                        "description": "The permissions of its folder when it is created, by default `0755`, or `0775` \
                                        with a `gid`",
                        "anyOf": [
                            {"type": "string", "pattern": "^0?([4-7][04-7]{0,2})$"},
                            {"type": "null"},
                        ],
                    },
                    "app": {
                        "type": ["string", "null"], "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                        "description": "Only of the kind shared: the app of the service, which is filled in",
                    },
                    "tmpfs": {
                        "type": "object", "additionalProperties": false,
                        "description": "Only of the type tmpfs",
                        "properties": {"size": {
                            "description": "Most that it may hold, as memory of the container",
                            "type": ["integer", "string"], "minimum": 0, "maximum": MAX_MEMORY_BYTES,
                            "pattern": BYTES,
                        }},
                    },
                },
            },
        ],
    });
    ContainerName => json!({
        "type": "string", "description": "A DNS label, unique in the pod", "example": "cache",
        "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    });
    Aliases => json!({
        "description": "DNS names; an underscore is as good as a hyphen",
        "type": "array", "maxItems": 64, "example": ["database", "db.internal"],
        "items": {"type": "string", "minLength": 1, "maxLength": 254, "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$"},
    });
    AllowFrom => json!({
        "description": "Names of services; within an app those in the app, unless they end with `.kubeleet`",
        "type": "array", "maxItems": 256, "uniqueItems": true, "example": ["web"],
        "items": {
            "type": "string", "minLength": 1, "maxLength": 72,
            "pattern": r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.kubeleet)?$",
        },
    });
    DependsOn => json!({
        "description": "A list of names, or a map of names to conditions: `service_started`, `service_healthy` or \
                        `service_completed_successfully`",
        "example": {"cache": "service_started"},
        "anyOf": [
            {"type": "object", "additionalProperties": {
                "type": "string", "pattern": "^(service_)?(started|healthy|completed_successfully)$",
            }},
            {"type": "array", "items": {"type": "string"}},
        ],
    });
    Environment => json!({
        "description": "Environment variables: a map of names to values, or a list of `NAME=value`",
        "example": {"LOG_LEVEL": "debug"},
        "anyOf": [
            {
                "type": "object",
                "propertyNames": {"type": "string", "pattern": "^[^=\\x00]+$"},
                "additionalProperties": {
                    "type": ["string", "boolean", "number"], "pattern": "^[^\\x00]*$",
                },
            },
            {"type": "array", "items": {"type": "string", "pattern": "^[^=\\x00]+=[^\\x00]*$"}},
        ],
    });
    Port => json!({
        "description": "A published port: `80`, `\"8080:80\"`, `\"0.0.0.0:8080:80/udp\"`, or an object; \
                        bound to loopback unless an address is given",
        "example": "8080:80",
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": u16::MAX},
            {
                "type": "string",
                "pattern": format!("^(({OCTET}(\\.{OCTET}){{3}}:)?{PORT}:)?{PORT}(/(tcp|udp))?$"),
            },
            {
                "type": "object",
                "required": ["container"],
                "additionalProperties": false,
                "properties": {
                    "container": {
                        "type": "integer", "minimum": 0, "maximum": u16::MAX,
                        "description": "Port inside the container",
                    },
                    "host": {
                        "type": ["integer", "null"], "minimum": 0, "maximum": u16::MAX,
                        "description": "Port on the host; the engine chooses one if absent",
                    },
                    "host_ip": {
                        "description": "Address on the host; loopback if absent",
                        "anyOf": [
                            {"type": "string", "format": "ipv4"},
                            {"type": "string", "format": "ipv6"},
                            {"type": "null"},
                        ],
                    },
                    "protocol": {
                        "type": "string", "enum": ["tcp", "udp"], "default": "tcp",
                        "description": "The protocol of both ports",
                    },
                },
            },
        ],
    });
}

fn owner(description: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": u32::MAX - 1},
            {"type": "string", "pattern": "^[0-9]{1,9}$"},
            {"type": "null"},
        ],
    })
}

impl PartialSchema for ServiceInput {
    fn schema() -> RefOr<Schema> {
        let mut properties = serde_json::Map::new();
        let of_container = fields_of(ContainerSpec::schema());
        let of_container =
            of_container.filter(|(name, _)| !ContainerSpec::AMONG_OTHERS.contains(&name.as_str()));
        let of_service = fields_of(NameAndReplicas::schema()).chain(fields_of(ServiceFields::schema()));
        let all = of_container.chain(of_service).chain(fields_of(PodSpec::schema()));
        properties.extend(all.map(|(name, field)| (name, optional(field))));
        properties.extend(fields_of(NameAndReplicas::schema()).filter(|(name, _)| name == "name"));
        parse(json!({
            "type": "object",
            "description": "A service as a user describes it. The fields of its only container can be at the top \
                            level instead of in `containers`.",
            "required": ["name"],
            "properties": properties,
            "additionalProperties": false,
        }))
    }
}

impl ToSchema for ServiceInput {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        NameAndReplicas::schemas(schemas);
        ServiceFields::schemas(schemas);
        schemas.push((ContainerSpec::name().into_owned(), ContainerSpec::schema()));
        ContainerSpec::schemas(schemas);
        PodSpec::schemas(schemas);
    }
}

/// Derived schemas lack aliases and `not`.
pub fn describe_replicas_aliases(schema: &mut Value) {
    let is_required =
        schema["required"].as_array().is_some_and(|required| required.contains(&json!("replicas")));
    let field = &mut schema["properties"]["replicas"];
    field["maximum"] = MAX_REPLICAS.into();
    // Generated clients would send a default together with an alias.
    field.as_object_mut().map(|field| field.remove("default"));
    let mut other_name = field.clone();
    // All examples together form one of the whole.
    other_name.as_object_mut().map(|field| field.remove("example"));
    other_name["description"] = "Another name of `replicas`".into();
    for alias in &REPLICAS_NAMES[1..] {
        schema["properties"][alias] = other_name.clone();
    }
    if is_required {
        schema.as_object_mut().map(|schema| schema.remove("required"));
        schema["minProperties"] = 1.into();
        schema["maxProperties"] = 1.into();
    } else {
        schema["not"] = json!({"anyOf": [
            {"required": ["replicas", "replica"]},
            {"required": ["replicas", "numInstances"]},
            {"required": ["replica", "numInstances"]},
        ]});
    }
}

pub const STRICT: [&str; 13] = [
    "ContainerSpec",
    "HealthCheck",
    "Hook",
    "HttpCheck",
    "TcpCheck",
    "Logging",
    "LogOptions",
    "Placement",
    "UpdatePolicy",
    "RollbackPolicy",
    "JobPolicy",
    "CronPolicy",
    "CronHistory",
];

pub fn refuse_other_fields(schema: &mut Value) {
    schema["additionalProperties"] = false.into();
}

pub fn of_service() -> Value {
    let mut parts = Vec::new();
    ServiceInput::schemas(&mut parts);
    let mut definitions = serde_json::Map::new();
    for (name, schema) in parts {
        definitions.insert(name, serde_json::to_value(schema).expect("a schema is JSON"));
    }
    for name in STRICT {
        if let Some(schema) = definitions.get_mut(name) {
            refuse_other_fields(schema);
        }
    }
    let mut schema = serde_json::to_value(ServiceInput::schema()).expect("a schema is JSON");
    describe_replicas_aliases(&mut schema);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "kubeleet service".into();
    schema["$defs"] = definitions.into();
    refer_to_definitions(&mut schema);
    schema
}

fn refer_to_definitions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::String(target) if key == "$ref" => {
                        *target = target.replace("#/components/schemas/", "#/$defs/");
                    }
                    other => refer_to_definitions(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(refer_to_definitions),
        _ => {}
    }
}

fn fields_of(schema: RefOr<Schema>) -> impl Iterator<Item = (String, Value)> {
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    let fields: serde_json::Map<String, Value> =
        serde_json::from_value(schema["properties"].take()).unwrap_or_default();
    fields.into_iter()
}

fn optional(mut field: Value) -> Value {
    // Optional values of another type have the description beside the reference.
    let of_choice = |choice: &Value| choice["description"].as_str().map(str::to_owned);
    let nested = field["oneOf"].as_array().and_then(|choices| choices.iter().find_map(of_choice));
    let description = field["description"].as_str().map(str::to_owned).or(nested).unwrap_or_default();
    let mut whole = serde_json::Map::new();
    if let Value::Object(field) = &mut field {
        field.remove("description");
        for keyword in ["default", "example"] {
            whole.extend(field.remove_entry(keyword));
        }
    }
    whole.insert("description".to_owned(), description.into());
    whole.insert("anyOf".to_owned(), json!([field, {"type": "null"}]));
    Value::Object(whole)
}

fn parse(schema: Value) -> RefOr<Schema> {
    RefOr::T(serde_json::from_value(schema).expect("the schemas above are valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: PartialSchema>() -> Value {
        serde_json::to_value(T::schema()).expect("a schema is JSON")
    }

    #[test]
    fn schemas_keep_every_keyword() {
        assert_eq!(round_trip::<ServiceName>()["maxLength"], 63);
        assert_eq!(round_trip::<Memory>()["type"], json!(["integer", "string"]));
        assert_eq!(round_trip::<Memory>()["minimum"], 6 * 1024 * 1024);
        let environment = round_trip::<Environment>();
        assert_eq!(environment["anyOf"][0]["propertyNames"]["pattern"], "^[^=\\x00]+$");
        assert_eq!(environment["anyOf"][0]["additionalProperties"]["type"].as_array().map(Vec::len), Some(3));
        assert_eq!(round_trip::<Port>()["anyOf"][2]["additionalProperties"], false);
        assert_eq!(round_trip::<Command>()["anyOf"][0]["items"]["type"], "string");
    }

    #[test]
    fn no_part_of_a_document_allows_other_fields() {
        let schema = of_service();
        let parts = schema["$defs"].as_object().unwrap().iter();
        let lenient = parts.filter(|(_, part)| {
            part.get("properties").is_some() && part["additionalProperties"] != Value::Bool(false)
        });
        assert_eq!(lenient.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [""; 0]);
    }
}
