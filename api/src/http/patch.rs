//! JSON merge patch (RFC 7396) of a stored service. Pure.

use model::service::Service;
use model::spec::{DesiredService, REPLICAS_NAMES, ServiceInput};
use serde_json::{Map, Value};

use crate::http::body::read_value;
use crate::http::problem::{ApiProblem, ProblemKind};

pub(crate) fn fields(patch: Value) -> Result<Map<String, Value>, ApiProblem> {
    match patch {
        Value::Object(fields) => Ok(fields),
        _ => {
            let detail = "a patch is an object with the fields to change";
            Err(ApiProblem::new(ProblemKind::InvalidBody, detail))
        }
    }
}

/// A patch with `containers` applies to the long form, any other to the short form, so that
/// `{"image":"nginx:2"}` changes the only container's image.
pub(crate) fn apply(service: &Service, patch: &Map<String, Value>) -> Result<ServiceInput, ApiProblem> {
    let patch = with_canonical_replicas(patch)?;
    let input = ServiceInput::from(DesiredService::from(service.clone()));
    let mut document =
        if patch.contains_key("containers") { json(&input.long_form())? } else { json(&input)? };
    json_patch::merge(&mut document, &Value::Object(patch));
    read_value(&document)
}

fn with_canonical_replicas(patch: &Map<String, Value>) -> Result<Map<String, Value>, ApiProblem> {
    let mut renamed = Map::new();
    for (key, value) in patch {
        let name = if REPLICAS_NAMES.contains(&key.as_str()) { REPLICAS_NAMES[0] } else { key };
        if renamed.insert(name.to_owned(), value.clone()).is_some() {
            let detail = "\"replicas\" is set twice, under different names; keep one";
            let problem = ApiProblem::new(ProblemKind::InvalidBody, detail);
            return Err(problem.at(format!("/{key}"), detail));
        }
    }
    Ok(renamed)
}

fn json(value: &impl serde::Serialize) -> Result<Value, ApiProblem> {
    serde_json::to_value(value).map_err(|error| {
        ApiProblem::new(
            ProblemKind::Internal,
            format!("the stored service cannot be written as JSON: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn patched(service: &Service, patch: &Value) -> Result<ServiceInput, ApiProblem> {
        apply(service, &fields(patch.clone())?)
    }

    fn stored(input: Value) -> Service {
        let input = ServiceInput::from_value(&input).unwrap();
        testkit::fixtures::service_of(input.normalize().unwrap())
    }

    fn full() -> Value {
        json!({"name": "web", "image": "nginx", "replica": 3, "memory": "64MiB", "cpus": 0.5,
               "environment": {"A": "1", "B": "2"}, "ports": ["8080:80"], "labels": {"team": "x"},
               "command": ["a", "b"], "restart": "never", "on_disconnect": "stop", "stop_grace_period": 20})
    }

    #[test]
    fn an_empty_patch_changes_nothing() {
        let service = stored(full());
        let after = patched(&service, &json!({})).unwrap().normalize().unwrap();
        assert_eq!((after.pod, after.replicas, after.fields.labels), (service.pod, 3, service.fields.labels));
    }

    #[test]
    fn a_patch_merges_removes_and_replaces() {
        let table = [
            (json!({"image": "nginx:2"}), json!({"image": "nginx:2"})),
            (json!({"numInstances": 5}), json!({"replica": 5})),
            (json!({"environment": {"A": null, "C": "3"}}), json!({"environment": {"B": "2", "C": "3"}})),
            (json!({"labels": null}), json!({"labels": {}})),
            (json!({"memory": null}), json!({"memory": null})),
            (json!({"restart": "always", "ports": [81]}), json!({"restart": "always", "ports": [81]})),
        ];
        for (patch, difference) in table {
            let mut expected = full();
            for (key, value) in difference.as_object().unwrap() {
                expected[key] = value.clone();
            }
            let after = patched(&stored(full()), &patch).unwrap().normalize().unwrap();
            let expected = stored(expected);
            assert_eq!(
                (after.pod, after.replicas, after.fields.labels),
                (expected.pod, expected.replicas, expected.fields.labels)
            );
        }
    }

    #[test]
    fn containers_are_replaced_as_a_whole() {
        let after = patched(&stored(full()), &json!({"containers": [{"image": "redis"}]})).unwrap();
        let after = after.normalize().unwrap();
        assert_eq!((after.pod.image(), after.pod.request().memory_bytes), ("redis", 0));
    }

    #[test]
    fn an_invalid_patch_is_refused() {
        let kind = |patch: Value| patched(&stored(full()), &patch).unwrap_err().kind;
        for patch in
            [json!([]), json!("x"), json!(null), json!({"imagee": "x"}), json!({"replica": 1, "replicas": 2})]
        {
            assert_eq!(kind(patch.clone()), ProblemKind::InvalidBody, "{patch}");
        }
    }
}
