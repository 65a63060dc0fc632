//! The immutable JSON in the queues. Pods of a service have their specification in `spec:<id>`, pushed pods
//! in further fields: [`Payload::inline_spec`].

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{PodId, PodName, ServiceName, SpecId};
use crate::spec::{ContainerSpec, PodSpec, check_image};
use document::{self, DocumentReadError, Mistake, Values, Vocabulary, field_names, read_fields};

/// A larger payload is rejected unread.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// The message becomes the dead letter's `reason`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPayload {
    /// Size in bytes.
    #[error("payload has {0} bytes, but at most {MAX_PAYLOAD_BYTES} are allowed")]
    TooLarge(usize),
    /// Position of the first invalid byte.
    #[error("payload is not UTF-8: byte {0} is invalid")]
    NotUtf8(usize),
    #[error("payload is not a pod: {0}")]
    NotAPod(String),
    #[error("payload field `{field}`: {detail}")]
    BadField {
        field: &'static str,
        /// The problem.
        detail: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// Exact: LREM and SREM find the payload by value.
    #[serde(skip)]
    pub raw: Bytes,
    pub name: PodName,
    #[serde(rename = "uuid")]
    pub id: PodId,
    /// The image of the first container.
    pub image: String,
    /// Not a count.
    pub replica: u32,
    /// `None` for a pushed pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<SpecId>,
}

impl Payload {
    pub fn parse(raw: Bytes) -> Result<Self, InvalidPayload> {
        if raw.len() > MAX_PAYLOAD_BYTES {
            return Err(InvalidPayload::TooLarge(raw.len()));
        }
        let text = std::str::from_utf8(&raw).map_err(|e| InvalidPayload::NotUtf8(e.valid_up_to()))?;
        let payload: Self = read(text.as_bytes())?;
        check_image(&payload.image)
            .map_err(|detail| InvalidPayload::BadField { field: "image", detail: detail.into() })?;
        Ok(Self { raw: raw.clone(), ..payload })
    }

    /// Equal arguments produce equal bytes, so reconciliation can rebuild it.
    pub fn for_service(name: PodName, id: PodId, image: &str, replica: u32, spec: SpecId) -> Self {
        let image = image.to_owned();
        let payload = Self { raw: Bytes::new(), name, id, image, replica, spec: Some(spec) };
        let json = serde_json::to_vec(&payload).expect("strings and numbers always serialize");
        Self { raw: json.into(), ..payload }
    }

    /// Returns the name of the pod for people, such as `web-0`.
    pub fn display_name(&self) -> String {
        format!("{}-{}", self.name, self.replica)
    }

    pub fn service(&self) -> Option<ServiceName> {
        self.spec.as_ref().and_then(|_| ServiceName::new(self.name.as_str()).ok())
    }

    pub fn inline_spec(&self) -> Result<InlineSpec, InvalidPayload> {
        let (pod, unknown) = inline(&self.raw)?;
        if let Some(violation) = pod.containers.iter().find_map(|c| c.violations("").into_iter().next()) {
            return Err(InvalidPayload::NotAPod(violation.to_string()));
        }
        if let Some(volume) = pod.persistent_volumes().first() {
            let reason = format!(
                "the persistent volume {} needs a service, whose replica it belongs to: apply a service, or give the \
                 volume `kind: local`",
                volume.source
            );
            return Err(InvalidPayload::NotAPod(reason));
        }
        if let Some(volume) = pod.shared_volumes().first() {
            let reason = format!(
                "the shared volume {} needs a service, whose pods share it: apply a service, or give the volume `kind: \
                 local`",
                volume.source
            );
            return Err(InvalidPayload::NotAPod(reason));
        }
        if !pod.resources.is_empty() {
            let reason = format!(
                "`resources` ({}) needs a service, whose pods the schedulers give ids: apply a service, or a job",
                pod.resources
            );
            return Err(InvalidPayload::NotAPod(reason));
        }
        Ok(InlineSpec { pod, unknown })
    }
}

fn inline(raw: &[u8]) -> Result<(PodSpec, Map<String, Value>), InvalidPayload> {
    let mut unknown: Map<String, Value> = read(raw)?;
    let mut document = document::json(raw).map_err(|mistake| not_json(&mistake))?;
    document.remove_field("containers");
    document.remove_field("kind");
    let is_known = |name: &&str| !ContainerSpec::AMONG_OTHERS.contains(name);
    let mut known = field_names::<Payload>();
    known.extend(field_names::<ContainerSpec>().into_iter().filter(is_known));
    known.extend(field_names::<PodSpec>().into_iter().filter(|name| !["containers", "kind"].contains(name)));
    unknown.retain(|name, _| !known.contains(&name.as_str()));
    let mut pod: PodSpec = read_fields(&document).map_err(|error| unfit(&error))?;
    let container = document.without(&ContainerSpec::AMONG_OTHERS);
    pod.containers = vec![read_fields(&container).map_err(|error| unfit(&error))?];
    Ok((pod, unknown))
}

/// Errors name the field but no values: they can be secrets, and reasons go to logs and events.
fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, InvalidPayload> {
    serde_json::from_slice(json).map_err(|_| {
        let document = match document::json(json) {
            Err(mistake) => return not_json(&mistake),
            Ok(document) => document,
        };
        match read_fields::<T>(&document) {
            Err(error) => unfit(&error),
            Ok(_) => {
                InvalidPayload::NotAPod("a field is set twice, or the JSON is nested too deeply".to_owned())
            }
        }
    })
}

fn not_json(mistake: &Mistake) -> InvalidPayload {
    InvalidPayload::NotAPod(format!("it is not JSON: {mistake}"))
}

fn unfit(error: &DocumentReadError) -> InvalidPayload {
    InvalidPayload::NotAPod(error.message(Vocabulary::Fields, Values::Hidden))
}

#[derive(Debug, Clone, PartialEq)]
pub struct InlineSpec {
    pub pod: PodSpec,
    /// No engine gets them; the node's policy checks them.
    pub unknown: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Payload, InvalidPayload> {
        Payload::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn the_sample_payload_is_valid() {
        let line = r#"{"name":"test","uuid":"djkf…","image":"spaster/alpine-sleep","replica":3}"#;
        let payload = parse(line).unwrap();
        assert_eq!((payload.name.as_str(), payload.replica, payload.spec.is_none()), ("test", 3, true));
        assert_eq!(payload.raw, line.as_bytes());
    }

    #[test]
    fn a_service_payload_is_rebuilt_byte_for_byte() {
        let id = PodId::random();
        let make = || {
            let spec = SpecId::new("0123456789ab").unwrap();
            Payload::for_service(PodName::new("web").unwrap(), id.clone(), "nginx", 0, spec)
        };
        assert_eq!(make().raw, make().raw);
        assert_eq!(Payload::parse(make().raw).unwrap(), make());
    }

    #[test]
    fn unknown_fields_are_kept_and_returned() {
        let payload =
            parse(r#"{"name":"t","uuid":"u","image":"i","replica":0,"command":["a"],"privileged":true}"#)
                .unwrap();
        let inline = payload.inline_spec().unwrap();
        assert_eq!(inline.pod.containers[0].command.0, ["a"]);
        assert_eq!(inline.unknown.get("privileged"), Some(&Value::Bool(true)));
        assert!(std::str::from_utf8(&payload.raw).unwrap().contains("privileged"));
    }

    #[test]
    fn numbers_that_nobody_can_mean_are_refused_with_the_field() {
        for (field, part) in [
            (r#""memory":10000000000000000000"#, "memory"),
            (r#""memory":9223372036854775807"#, "memory"),
            (r#""memory":1e300"#, "memory"),
            (r#""memory":-1"#, "memory"),
            (r#""cpus":100001"#, "cpus"),
            (r#""cpus":1e300"#, "cpus"),
            (r#""cpus":-1"#, "cpus"),
            (r#""ports":["65536:80"]"#, "ports"),
            (r#""stop_grace_period":10000000000000000000"#, "stop_grace_period"),
        ] {
            let text = format!(r#"{{"name":"t","uuid":"u","image":"i","replica":0,{field}}}"#);
            let reason = parse(&text).unwrap().inline_spec().unwrap_err().to_string();
            assert!(reason.contains(part), "{reason:?} should mention {part:?}");
        }
        assert!(parse(r#"{"name":"t","uuid":"u","image":"i","replica":4294967296}"#).is_err());
    }

    #[test]
    fn each_kind_of_invalid_payload_has_its_reason() {
        let cases: [(&[u8], &str); 11] = [
            (b"", "not JSON: the text ends too early"),
            (b"\xff\xfe", "not UTF-8"),
            (b"[]", "not a pod"),
            (b"{}", "name is missing"),
            (br#"{"name":"t","uuid":"u","image":"i","replica":"3"}"#, "replica"),
            (br#"{"name":"t","uuid":"u","image":"i","replica":-1}"#, "replica must be a whole number from 0"),
            (b"{name:1}", "the name of a field must stand in quotation marks (line 1, column 2)"),
            (b"hello", "text without quotation marks"),
            (br#"{"name":"../t","uuid":"u","image":"i","replica":1}"#, "pod name"),
            (br#"{"name":"t","uuid":"","image":"i","replica":1}"#, "pod uuid"),
            (br#"{"name":"t","uuid":"u","image":"a b","replica":1}"#, "image"),
        ];
        for (bytes, part) in cases {
            let reason = Payload::parse(Bytes::copy_from_slice(bytes)).unwrap_err().to_string();
            assert!(reason.contains(part), "{reason:?} should mention {part:?}");
        }
        let reason = Payload::parse(Bytes::from(vec![b' '; MAX_PAYLOAD_BYTES + 1])).unwrap_err().to_string();
        assert!(reason.contains("262145 bytes"), "{reason}");
    }

    #[test]
    fn a_reason_never_has_a_value_of_the_payload() {
        let secret = "hunter2\\\" and `more`: hunter2";
        let mut fields = field_names::<Payload>();
        fields.extend(field_names::<ContainerSpec>());
        fields.extend(field_names::<PodSpec>());
        for field in fields {
            for value in
                [format!("\"{secret}\""), format!("[\"{secret}\"]"), format!("{{\"a\":[\"{secret}\"]}}")]
            {
                let mut members = vec![format!(r#""{field}":{value}"#)];
                let others = [("name", r#""t""#), ("uuid", r#""u""#), ("image", r#""i""#), ("replica", "0")];
                members.extend(
                    others
                        .iter()
                        .filter(|(name, _)| *name != field)
                        .map(|(name, v)| format!(r#""{name}":{v}"#)),
                );
                let parsed = parse(&format!("{{{}}}", members.join(",")));
                let reason = match parsed.map(|payload| payload.inline_spec()) {
                    Err(invalid) | Ok(Err(invalid)) => invalid.to_string(),
                    Ok(Ok(_)) => continue,
                };
                assert!(!reason.contains("hunter2"), "{field}: {reason}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_does_not_panic_on_any_bytes(bytes: Vec<u8>) {
            if let Ok(payload) = Payload::parse(Bytes::from(bytes)) {
                let _ = payload.inline_spec();
            }
        }
    }
}
