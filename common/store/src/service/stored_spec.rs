//! The stored form of a specification, in `spec:<id>` and in `spec_text` of a service.
//!
//! It is read leniently: unknown fields are ignored, and missing ones mean the behaviour before the field
//! existed. So a version can read specifications of the next one, and a new field replaces no pod.
//! `tests/fixtures/stored` has specifications of each released version.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use model::ids::{ServiceName, SpecId};
use model::spec::{ContainerSpec, FORM_WITH_RULES, PodSpec, ServiceFields};

/// Raise it only if earlier programs would run a pod wrongly.
pub const NEWEST_FORM: u32 = FORM_WITH_RULES;
const PLAIN: u32 = 3;

/// Every payload contains the id. A collision among a million specifications has a chance of one in 30
/// million.
const SPEC_ID_BYTES: usize = 8;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpecFile {
    #[serde(default)]
    version: u32,
    service: ServiceName,
    pod: PodSpec,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecFileError {
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
    #[error(
        "it was stored by a newer kubeleet (form {0}; this program reads forms up to {NEWEST_FORM}): upgrade this program"
    )]
    Newer(u32),
    #[error("it has no container")]
    NoContainer,
}

impl SpecFile {
    pub(crate) fn new(service: &ServiceName, pod: &PodSpec, fields: &ServiceFields) -> Self {
        let has_rules = fields.placement.as_ref().is_some_and(|placement| !placement.is_soft());
        let version = if has_rules || pod.needs_newest_form() { FORM_WITH_RULES } else { PLAIN };
        Self { version, service: service.clone(), pod: pod.clone() }
    }

    pub(crate) fn read(text: &[u8]) -> Result<PodSpec, SpecFileError> {
        #[derive(Deserialize)]
        struct Version {
            #[serde(default)]
            version: u32,
        }
        let Version { version } = serde_json::from_slice(text)?;
        if version > NEWEST_FORM {
            return Err(SpecFileError::Newer(version));
        }
        let file: SpecFile = serde_json::from_slice(text)?;
        if file.pod.containers.is_empty() {
            return Err(SpecFileError::NoContainer);
        }
        Ok(file.pod)
    }

    pub(crate) fn fingerprint(&self) -> String {
        fingerprint(&self.pod)
    }

    /// Equal fingerprints of one service have equal ids, so its pods are not replaced. Services share no ids:
    /// each deletes its own. Another form is another id: a program may be unable to read it.
    pub(crate) fn id(&self) -> SpecId {
        let form = if self.version > PLAIN { format!(" {}", self.version) } else { String::new() };
        let digest = Sha256::digest(format!("{} {}{form}", self.service, self.fingerprint()));
        SpecId::new(hex(&digest[..SPEC_ID_BYTES])).expect("hexadecimal digits are an id")
    }
}

/// It does not depend on the order of fields or on explicit defaults, so new fields change no fingerprint.
fn fingerprint(pod: &PodSpec) -> String {
    let (pod, missing) = (to_value(pod), to_value(&without_choices()));
    let canonical = without_defaults(pod, &missing).to_string();
    hex(&Sha256::digest(canonical.as_bytes())[..16])
}

/// Returns true if a service that has one keeps its pods when the other is stored.
pub fn is_same_specification(one: &PodSpec, other: &PodSpec) -> bool {
    fingerprint(one) == fingerprint(other)
}

fn without_choices() -> PodSpec {
    PodSpec { containers: vec![ContainerSpec::default()], ..PodSpec::default() }
}

/// Drops fields with the value of `missing`; elements of a list are compared with its first element.
fn without_defaults(value: Value, missing: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let differing = fields.into_iter().filter(|(name, value)| missing.get(name) != Some(value));
            let fields = differing.map(|(name, value)| {
                let missing = missing.get(&name).unwrap_or(&Value::Null);
                (name, without_defaults(value, missing))
            });
            Value::Object(fields.collect())
        }
        Value::Array(elements) => {
            let missing = missing.get(0).unwrap_or(&Value::Null);
            Value::Array(elements.into_iter().map(|element| without_defaults(element, missing)).collect())
        }
        other => other,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn to_value(pod: &PodSpec) -> Value {
    serde_json::to_value(pod).expect("strings, numbers and maps with string keys serialize")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::spec::{DesiredService, ServiceInput};

    fn desired(json: &str) -> DesiredService {
        ServiceInput::from_value(&serde_json::from_str(json).unwrap()).unwrap().normalize().unwrap()
    }

    fn file(json: &str) -> SpecFile {
        let desired = desired(json);
        SpecFile::new(&desired.name, &desired.pod, &desired.fields)
    }

    fn fingerprint(json: &str) -> String {
        file(json).fingerprint()
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let desired = desired(
            r#"{"name":"web","image":"nginx","command":"sh -c 'sleep 1'","environment":["A=b"],
                "ports":["8080:80"],"memory":"64m","cpus":"0.5","restart":"no","on_disconnect":"stop"}"#,
        );
        let text = serde_json::to_vec(&SpecFile::new(&desired.name, &desired.pod, &desired.fields)).unwrap();
        assert_eq!(SpecFile::read(&text).unwrap(), desired.pod);
    }

    #[test]
    fn the_stored_form_has_these_bytes() {
        let text = serde_json::to_string(&file(r#"{"name":"web","image":"nginx","memory":"64m"}"#)).unwrap();
        assert_eq!(
            text,
            r#"{"version":3,"service":"web","pod":{"containers":[{"image":"nginx","memory":67108864,"restart":"always"}],"on_disconnect":"keep","stop_grace_period":10}}"#
        );
    }

    #[test]
    fn unknown_and_missing_fields_are_read_leniently() {
        let text =
            br#"{"service":"web","owner":"a","pod":{"hooks":[1],"containers":[{"image":"nginx","gpu":1}]}}"#;
        assert_eq!(SpecFile::read(text).unwrap(), desired(r#"{"name":"web","image":"nginx"}"#).pod);
    }

    #[test]
    fn a_newer_form_is_refused_with_what_to_do() {
        let error = SpecFile::read(br#"{"version":5,"service":"web","pod":{"sandboxes":[]}}"#).unwrap_err();
        assert!(error.to_string().contains("form 5; this program reads forms up to 4"), "{error}");
        assert!(error.to_string().ends_with("upgrade this program"), "{error}");
    }

    #[test]
    fn the_fingerprint_is_that_of_what_the_pods_do() {
        let plain = fingerprint(r#"{"name":"web","image":"nginx"}"#);
        for same in [
            r#"{"name":"web","image":"nginx","replicas":9,"labels":{"a":"b"}}"#,
            r#"{"name":"web","containers":[{"image":"nginx","restart":"always"}],"stop_grace_period":"10s"}"#,
        ] {
            assert_eq!(fingerprint(same), plain, "{same}");
        }
        for other in [
            r#"{"name":"web","image":"nginx:2"}"#,
            r#"{"name":"web","image":"nginx","restart":"never"}"#,
            r#"{"name":"web","image":"nginx","stop_grace_period":0}"#,
            r#"{"name":"web","image":"nginx","command":["a"]}"#,
        ] {
            assert_ne!(fingerprint(other), plain, "{other}");
        }
        assert_eq!(plain, "760f545c2d80db39ab278018f636977b", "it never changes: stored services have it");
    }

    #[test]
    fn the_id_is_that_of_what_the_pods_of_one_service_do() {
        let id = |json: &str| file(json).id();
        let plain = id(r#"{"name":"web","image":"nginx"}"#);
        assert_eq!(id(r#"{"name":"web","image":"nginx","replicas":9,"restart":"always"}"#), plain);
        assert_ne!(id(r#"{"name":"web","image":"nginx:2"}"#), plain);
        assert_ne!(id(r#"{"name":"web2","image":"nginx"}"#), plain, "another service deletes it");
        assert_eq!(plain.as_str(), "f37db07b6706428a", "versions side by side agree on it");
    }

    #[test]
    fn rules_for_nodes_are_another_form_and_id_and_no_other_fingerprint() {
        let with = |more: &str| file(&format!(r#"{{"name":"web","image":"nginx"{more}}}"#));
        let (plain, soft) = (with(""), with(r#","placement":{"constraints":[]}"#));
        let rules = with(r#","placement":{"constraints":["disk == ssd"]}"#);
        assert_eq!((&soft, soft.id()), (&plain, plain.id()));
        assert_eq!((rules.version, rules.fingerprint()), (4, plain.fingerprint()));
        assert_ne!(rules.id(), plain.id(), "a program that reads one may be unable to read the other");
        let text = serde_json::to_vec(&rules).unwrap();
        assert_eq!(SpecFile::read(&text).unwrap(), rules.pod);
    }

    #[test]
    fn a_stateful_service_is_another_form_and_generation() {
        let with = |more: &str| file(&format!(r#"{{"name":"db","image":"a","on_disconnect":"stop"{more}}}"#));
        let (plain, stateful) = (with(""), with(r#","stateful":true"#));
        assert_eq!((plain.version, stateful.version), (3, 4));
        assert_ne!(stateful.fingerprint(), plain.fingerprint());
        assert_eq!(with(r#","stateful":false"#), plain);
        let text = serde_json::to_vec(&stateful).unwrap();
        assert_eq!(SpecFile::read(&text).unwrap(), stateful.pod);
    }

    #[test]
    fn a_service_with_named_resources_is_another_form_and_generation() {
        let with = |more: &str| file(&format!(r#"{{"name":"train","image":"a"{more}}}"#));
        let (plain, one) = (with(""), with(r#","resources":{"gpu":1}"#));
        assert_eq!(
            (plain.version, one.version),
            (3, 4),
            "a scheduler that cannot count them must not place it"
        );
        assert_ne!(one.fingerprint(), plain.fingerprint());
        assert_ne!(one.fingerprint(), with(r#","resources":{"gpu":2}"#).fingerprint());
        assert_eq!(with(r#","resources":{}"#), plain);
        let text = serde_json::to_vec(&one).unwrap();
        assert_eq!(SpecFile::read(&text).unwrap(), one.pod);
    }

    #[test]
    fn a_global_service_is_another_form_and_generation() {
        let with = |more: &str| file(&format!(r#"{{"name":"agent","image":"a"{more}}}"#));
        let (plain, global) = (with(""), with(r#","mode":"global""#));
        assert_eq!((plain.version, global.version), (3, 4));
        assert_ne!(global.fingerprint(), plain.fingerprint());
        assert_eq!(with(r#","mode":"replicated""#), plain);
    }

    #[test]
    fn a_field_with_the_value_that_its_absence_means_changes_no_fingerprint() {
        let missing = serde_json::json!({"containers": [{"image": "", "tty": false}], "hooks": []});
        let with = serde_json::json!({"hooks": [], "containers": [{"tty": false, "image": "nginx"}]});
        let without = serde_json::json!({"containers": [{"image": "nginx"}]});
        assert_eq!(without_defaults(with, &missing), without);
    }
}
