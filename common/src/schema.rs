//! How names and values with more than one spelling appear in the OpenAPI document.
//!
//! The parsers in [`crate::ids`] and [`crate::spec`] decide what is valid; a pattern here repeats their rule
//! for clients that generate or check requests. `scripts/check-api` compares both.

use std::borrow::Cow;

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::ids::{AssignmentId, NodeName, PodId, PodName, ServiceName};
use crate::spec::{
    Command, ContainerSpec, Cpus, Environment, MAX_MEMORY_BYTES, Memory, PodSpec, Port, Seconds,
    ServiceFields, ServiceInput,
};

const CONTAINER_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
const SECONDS_OF_A_DAY: &str = "([0-9]{1,4}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400)";
const HOURS: &str = "([0-9]|1[0-9]|2[0-3])";
const SIXTY: &str = "[1-5]?[0-9]";
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const PORT: &str = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";

macro_rules! schemas {
    ($($type:ident => $schema:expr;)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                parse($schema)
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($type))
            }
        }
    )*};
}

schemas! {
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
    AssignmentId => json!({
        "type": "string", "description": "One assignment of a pod to a node; compared by equality only",
        "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$",
    });
    Memory => json!({
        "type": ["integer", "string"],
        "description": "Bytes, or a text with a unit such as `64MiB`, `64m` or `1.5GB`; at least 6 MiB",
        "example": "64MiB",
        "minimum": 6 * 1024 * 1024, "maximum": MAX_MEMORY_BYTES,
        "pattern": "^([0-9]{1,15}|[0-9]{1,9}(\\.[0-9]{1,3})?[kKmMgGtT]([iI]?[bB])?)$",
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
    Command => json!({
        "description": "A list of words, or one text that is split like a shell would",
        "example": ["sleep", "60"],
        "anyOf": [
            {"type": "array", "items": {"type": "string"}},
            {"type": "string", "pattern": r#"^([^'"\\#]|'[^']*'|"([^"\\]|\\[\s\S])*"|\\[\s\S])*$"#},
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
                    "protocol": {"type": "string", "enum": ["tcp", "udp"], "default": "tcp"},
                },
            },
        ],
    });
}

/// A document has the fields of the service, of its pods, and of their only container.
impl PartialSchema for ServiceInput {
    fn schema() -> RefOr<Schema> {
        let mut properties = serde_json::Map::new();
        for (schema, prefix) in [
            (ServiceFields::schema(), ""),
            (PodSpec::schema(), ""),
            (ContainerSpec::schema(), "Short for the field of `containers[0]`. "),
        ] {
            properties.extend(fields_of(schema).map(|(name, field)| (name, optional(field, prefix))));
        }
        properties.extend(fields_of(ServiceFields::schema()).filter(|(name, _)| name == "name"));
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
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ServiceInput")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        ServiceFields::schemas(schemas);
        schemas.push((ContainerSpec::name().into_owned(), ContainerSpec::schema()));
        ContainerSpec::schemas(schemas);
        PodSpec::schemas(schemas);
    }
}

fn fields_of(schema: RefOr<Schema>) -> impl Iterator<Item = (String, Value)> {
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    match schema["properties"].take() {
        Value::Object(fields) => fields.into_iter(),
        _ => serde_json::Map::new().into_iter(),
    }
}

/// A field that may be left out or `null`.
fn optional(mut field: Value, prefix: &str) -> Value {
    let description = field["description"].take();
    let mut whole = serde_json::Map::new();
    if let Value::Object(field) = &mut field {
        field.remove("description");
        for keyword in ["default", "example"] {
            whole.extend(field.remove_entry(keyword));
        }
    }
    whole.insert(
        "description".to_owned(),
        format!("{prefix}{}", description.as_str().unwrap_or_default()).into(),
    );
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
}
