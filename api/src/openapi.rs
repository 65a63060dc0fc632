//! Completes the OpenAPI document with parts that no handler's annotation describes.

use std::fmt::Write;
use std::sync::Arc;

use model::schema::{STRICT, describe_replicas_aliases, refuse_other_fields};
use model::spec::{PodSpec, ServiceFields};
use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, PathItem};

use crate::http::auth::is_public;
use crate::http::problem::{PROBLEM_JSON, REQUEST_TIMEOUT, retry_advice};

const DESCRIPTION: &str = "Runs containers on a few to a few thousand machines, coordinated by nothing but \
    Redis. Errors are RFC 9457 problem details; `type` is a path of this API that explains the problem. \
    Every response has the header `x-request-id`, which finds the request in the log; a client may choose \
    the id by sending that header.";

/// Operations that do not need Redis.
const PROCESS_TAG: &str = "process";
const TAGS: &[(&str, &str)] = &[
    ("service", "Desired pods, by service"),
    ("app", "Services that belong together"),
    ("pod", "Pods that run or wait"),
    ("node", "Where pods run"),
    ("volume", "The data of services"),
    ("secret", "Encrypted values that containers get as files"),
    ("config", "Values that containers get as files"),
    ("registry", "Users and passwords for registries of images"),
    ("queue", "Payloads in Redis, and dead letters"),
    ("event", "Events of the cluster"),
    ("cluster", "The state of the whole cluster"),
    (PROCESS_TAG, "This API process, and its documentation"),
];

pub(crate) fn complete(document: OpenApi) -> Value {
    let mut document = serde_json::to_value(document).expect("an OpenAPI document is JSON");
    let tags: Vec<Value> =
        TAGS.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    document["info"] = json!({
        "title": "kubeleet",
        "description": DESCRIPTION,
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    });
    document["servers"] = json!([{"url": "/", "description": "The API that serves this document"}]);
    document["tags"] = tags.into();
    document["security"] = json!([{"token": []}]);
    document["components"]["securitySchemes"] = json!({"token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of KUBELEET_TOKEN. An API without a token listens on loopback only.",
    }});
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete_operation(path, method, operation);
        }
    }
    let schemas = &mut document["components"]["schemas"];
    describe_replicas_aliases(&mut schemas["ServiceInput"]);
    describe_replicas_aliases(&mut schemas["ScaleInput"]);
    merge_parts(&mut schemas["ServiceView"]);
    for name in STRICT {
        refuse_other_fields(&mut schemas[name]);
    }
    schemas["ServicePatch"] = patch_schema(schemas);
    name_list_items(schemas);
    name_options_in_memory(schemas);
    document
}

/// The view of a service is made of parts; generated clients want one object.
fn merge_parts(schema: &mut Value) {
    let own = schema["allOf"].take();
    let of_document = [ServiceFields::schema(), PodSpec::schema()].map(|part| json!(part));
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for part in own.as_array().into_iter().flatten().chain(&of_document) {
        properties.extend(part["properties"].as_object().cloned().into_iter().flatten());
        required.extend(part["required"].as_array().cloned().into_iter().flatten());
    }
    // A document may lack them.
    required.extend(["labels", "on_disconnect", "stop_grace_period"].map(Value::from));
    let description = schema["description"].take();
    *schema =
        json!({"type": "object", "description": description, "properties": properties, "required": required});
}

/// In a merge patch every field is optional, and `null` removes any but the name.
fn patch_schema(schemas: &Value) -> Value {
    let mut patch = schemas["ServiceInput"].clone();
    patch["description"] = schemas["ServicePatch"]["description"].clone();
    patch.as_object_mut().map(|patch| patch.remove("required"));
    let mut environment = schemas["Environment"].clone();
    environment["anyOf"][0]["additionalProperties"]["type"] = json!(["string", "boolean", "number", "null"]);
    patch["properties"]["environment"] = environment;
    patch["properties"]["labels"]["additionalProperties"]["type"] = json!(["string", "null"]);
    for (name, field) in patch["properties"].as_object_mut().into_iter().flatten() {
        if name != "name" {
            *field = json!({"anyOf": [field.take(), {"type": "null"}]});
        }
    }
    patch
}

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    let retry = retry_advice(&method.to_ascii_uppercase());
    let unavailable = format!("Redis is unavailable; {retry}");
    let timed_out = format!("No answer within {} seconds; {retry}", REQUEST_TIMEOUT.as_secs());
    let has_parameters = operation["parameters"].as_array().is_some_and(|list| !list.is_empty());
    let has_body = !operation["requestBody"].is_null();
    let uses_redis = operation["tags"][0] != PROCESS_TAG;
    let is_public = is_public(path);
    if is_public {
        operation["security"] = json!([]);
    }
    let common = [
        (has_parameters || has_body, "400", "The path, the query, a header or the body is invalid"),
        (!is_public, "401", "The API has a token, and the request has none or another one"),
        (!is_public, "403", "The API has no token, and the request comes from a web page of another site"),
        (has_body, "408", "The body did not arrive within ten seconds"),
        (has_body, "413", "The body is larger than 1 MiB"),
        (has_body, "415", "The content type of the body is not supported"),
        (true, "500", "An internal error; the log of the API has the cause under the request id"),
        (uses_redis, "503", unavailable.as_str()),
        (true, "504", timed_out.as_str()),
    ];
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (_, status, description) in common.into_iter().filter(|(applies, _, _)| *applies) {
        responses.entry(status).or_insert_with(|| json!({"description": description}));
    }
    for (status, response) in responses {
        if status.starts_with(['4', '5']) {
            response["content"] = json!({PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}});
        }
        match status.as_str() {
            "401" => response["headers"] = header("WWW-Authenticate", "`Bearer`"),
            "503" => response["headers"] = header("Retry-After", "Seconds to wait before the next attempt"),
            _ => {}
        }
    }
}

fn header(name: &str, description: &str) -> Value {
    json!({name: {"description": description, "schema": {"type": "string"}}})
}

/// Generated clients should have one type per object.
fn name_list_items(schemas: &mut Value) {
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        if let Some(item) = name.strip_prefix("List_") {
            schema["properties"]["items"]["items"] = json!({"$ref": format!("#/components/schemas/{item}")});
        }
    }
}

/// Client generators fail on inline objects inside `anyOf`.
fn name_options_in_memory(schemas: &mut Value) {
    let forms = schemas["VolumeMount"]["anyOf"].as_array_mut();
    let options = forms.into_iter().flatten().find_map(|form| form.pointer_mut("/properties/tmpfs"));
    let options = options.expect("a form of VolumeMount is an object with tmpfs");
    let named = std::mem::replace(options, json!({"$ref": "#/components/schemas/TmpfsOptions"}));
    schemas["TmpfsOptions"] = named;
}

/// The answer of `GET /`.
#[derive(Clone)]
pub(crate) struct RouteIndex(Arc<str>);

impl RouteIndex {
    pub(crate) fn new(document: &OpenApi) -> Self {
        let mut text = "kubeleet: the API. As a web page: /docs; for programs: /openapi.json\n\n".to_owned();
        for (path, item) in &document.paths.paths {
            for (method, operation) in operations(item) {
                let summary = operation.summary.as_deref().unwrap_or_default();
                let _ = writeln!(text, "{method:<7}{path:<28}{summary}");
            }
        }
        Self(text.into())
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }
}

pub(crate) fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("POST", &item.post),
        ("PUT", &item.put),
        ("PATCH", &item.patch),
        ("DELETE", &item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}
