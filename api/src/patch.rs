//! JSON merge patch (RFC 7396) over a stored service. Pure.

use common::service::Service;
use common::spec::ServiceInput;
use serde_json::{Map, Value};

use crate::body::read_value;
use crate::problem::{ApiProblem, Kind};

/// The service as it would be posted, with the patch applied.
///
/// A patch that speaks of `containers` is applied to the long form. Others are applied to the short one, in which the
/// only container's fields stand at the top level, so that `{"image":"nginx:2"}` means what it says.
pub(crate) fn apply(service: &Service, patch: &Value) -> Result<ServiceInput, ApiProblem> {
    let Value::Object(patch) = patch else {
        return Err(ApiProblem::new(Kind::InvalidBody, "a patch is an object with the fields to change"));
    };
    let patch = with_one_name_for_replicas(patch)?;
    let mut document = long_form(service);
    if !patch.contains_key("containers") {
        shorten(&mut document);
    }
    merge(&mut document, &patch);
    read_value(Value::Object(document))
}

/// `replica` and `numInstances` mean `replicas`; the stored form has that one.
fn with_one_name_for_replicas(patch: &Map<String, Value>) -> Result<Map<String, Value>, ApiProblem> {
    let mut renamed = Map::new();
    for (key, value) in patch {
        let name = if key == "replica" || key == "numInstances" { "replicas" } else { key };
        if renamed.insert(name.to_owned(), value.clone()).is_some() {
            let detail = format!("`{key}` and another name of the same field are both given");
            return Err(ApiProblem::new(Kind::InvalidBody, detail.clone()).at(format!("/{key}"), detail));
        }
    }
    Ok(renamed)
}

fn long_form(service: &Service) -> Map<String, Value> {
    let input = ServiceInput {
        name: service.name.clone(),
        replicas: service.replicas,
        labels: service.labels.clone(),
        on_disconnect: service.pod.on_disconnect,
        stop_grace_period: Some(service.pod.stop_grace_period),
        containers: Some(service.pod.containers.clone()),
        image: None,
        command: None,
        environment: None,
        ports: None,
        memory: None,
        cpus: None,
        restart: None,
    };
    match serde_json::to_value(&input) {
        Ok(Value::Object(map)) => map,
        // A struct with text keys is an object.
        _ => Map::new(),
    }
}

/// Moves the only container's fields to the top level. With several there is no short form.
fn shorten(document: &mut Map<String, Value>) {
    let Some(Value::Array(containers)) = document.get("containers") else { return };
    let [Value::Object(only)] = containers.as_slice() else { return };
    let fields = only.clone();
    document.remove("containers");
    document.extend(fields);
}

/// RFC 7396: null removes, objects merge, everything else replaces.
fn merge(document: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                document.remove(key);
            }
            Value::Object(patch) => {
                let place = document.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                if let Value::Object(inner) = place {
                    merge(inner, patch);
                }
            }
            other => {
                document.insert(key.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use common::ids::SpecId;
    use common::service::ServiceState;
    use common::spec::DesiredService;
    use serde_json::json;

    use super::*;

    fn stored(input: Value) -> Service {
        let input: ServiceInput = serde_json::from_value(input).unwrap();
        let DesiredService { name, replicas, labels, pod } = input.normalize().unwrap();
        let (state, generation, spec_id) = (ServiceState::Active, 1, SpecId::random());
        Service { name, state, generation, spec_id, replicas, labels, created_at: 0, updated_at: 0, pod }
    }

    fn full() -> Value {
        json!({"name": "web", "image": "nginx", "replica": 3, "memory": "64MiB", "cpus": 0.5,
               "environment": {"A": "1", "B": "2"}, "ports": ["8080:80"], "labels": {"team": "x"},
               "command": ["a", "b"], "restart": "never", "on_disconnect": "stop", "stop_grace_period": 20})
    }

    #[test]
    fn nothing_changes_nothing() {
        let service = stored(full());
        let after = apply(&service, &json!({})).unwrap().normalize().unwrap();
        assert_eq!((after.pod, after.replicas, after.labels), (service.pod, 3, service.labels));
    }

    #[test]
    fn a_table_of_patches() {
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
            let after = apply(&stored(full()), &patch).unwrap().normalize().unwrap();
            let expected = stored(expected);
            assert_eq!(
                (after.pod, after.replicas, after.labels),
                (expected.pod, expected.replicas, expected.labels)
            );
        }
    }

    #[test]
    fn containers_are_replaced_as_a_whole() {
        let after = apply(&stored(full()), &json!({"containers": [{"image": "redis"}]})).unwrap();
        let after = after.normalize().unwrap();
        assert_eq!((after.pod.image(), after.pod.memory_bytes()), ("redis", 0));
    }

    #[test]
    fn what_is_no_patch() {
        let kind = |patch: Value| apply(&stored(full()), &patch).unwrap_err().kind;
        for patch in
            [json!([]), json!("x"), json!(null), json!({"imagee": "x"}), json!({"replica": 1, "replicas": 2})]
        {
            assert_eq!(kind(patch.clone()), Kind::InvalidBody, "{patch}");
        }
    }
}
