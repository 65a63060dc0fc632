//! A pod's payload: the JSON that travels the queues, and never changes on its way.
//!
//! Queue logic needs only [`Payload`], the head. What the pod is comes either from `spec:<id>` (pods of a service)
//! or from further fields in the same JSON (pods somebody pushed): [`Payload::inline_spec`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{PodId, PodName, SpecId};
use crate::spec::{
    Command, ContainerSpec, Cpus, Environment, Memory, OnDisconnect, PodSpec, Port, RestartPolicy, Seconds,
    check_image,
};

/// The largest payload that is read at all, in bytes.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// Why a payload can not be a pod. The text becomes the dead letter's `reason`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPayload {
    /// Larger than [`MAX_PAYLOAD`].
    #[error("payload has {0} bytes, more than the {MAX_PAYLOAD} allowed")]
    TooLarge(usize),
    /// Not text.
    #[error("payload is not UTF-8: byte {0} is invalid")]
    NotUtf8(usize),
    /// Not JSON, a field is missing, or it has the wrong type.
    #[error("payload is not a pod: {0}")]
    NotAPod(String),
    /// A field has a value it can not have.
    #[error("payload field `{field}`: {detail}")]
    BadField {
        /// Which.
        field: &'static str,
        /// Why not.
        detail: String,
    },
}

/// The head of a payload, with the bytes it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    /// The very bytes: LREM and SREM are by value.
    pub raw: Bytes,
    /// First part of the container's name.
    pub name: PodName,
    /// Who it is.
    pub id: PodId,
    /// Image of its first container.
    pub image: String,
    /// Index among its service's pods, not a count.
    pub replica: u32,
    /// Present in pods of a service: the specification it was made from.
    pub spec: Option<SpecId>,
}

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    name: PodName,
    #[serde(rename = "uuid")]
    id: PodId,
    #[serde(borrow)]
    image: std::borrow::Cow<'a, str>,
    replica: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<SpecId>,
}

impl Payload {
    /// Reads the head. Never panics, whatever the bytes.
    pub fn parse(raw: Bytes) -> Result<Self, BadPayload> {
        if raw.len() > MAX_PAYLOAD {
            return Err(BadPayload::TooLarge(raw.len()));
        }
        let text = std::str::from_utf8(&raw).map_err(|e| BadPayload::NotUtf8(e.valid_up_to()))?;
        let head: Head<'_> = read(text.as_bytes())?;
        check_image(&head.image)
            .map_err(|detail| BadPayload::BadField { field: "image", detail: detail.into() })?;
        let Head { name, id, image, replica, spec } = head;
        Ok(Self { name, id, image: image.into_owned(), replica, spec, raw: raw.clone() })
    }

    /// The payload of a service's pod. The same arguments give the same bytes, so that reconcile can rebuild it.
    pub fn of_service(name: PodName, id: PodId, image: &str, replica: u32, spec: SpecId) -> Self {
        let head = Head { name, id, image: image.into(), replica, spec: Some(spec) };
        let raw =
            Bytes::from(serde_json::to_vec(&head).expect("a head of texts and numbers always serializes"));
        let Head { name, id, spec, .. } = head;
        Self { raw, name, id, image: image.to_owned(), replica, spec }
    }

    /// What a pushed pod says about itself beyond the four fields.
    pub fn inline_spec(&self) -> Result<InlineSpec, BadPayload> {
        let body: Body = read(&self.raw)?;
        let container = ContainerSpec {
            image: self.image.clone(),
            command: body.command,
            environment: body.environment,
            ports: body.ports,
            memory: body.memory,
            cpus: body.cpus,
            restart: body.restart,
        };
        if let Some(violation) = container.violations("").into_iter().next() {
            return Err(BadPayload::NotAPod(violation.to_string()));
        }
        let pod = PodSpec {
            containers: vec![container],
            on_disconnect: body.on_disconnect,
            stop_grace_period: body.stop_grace_period,
        };
        Ok(InlineSpec { pod, unknown: body.unknown })
    }
}

/// Reads JSON; the error names the field.
fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, BadPayload> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|e| BadPayload::NotAPod(e.to_string()))?;
    deserializer.end().map_err(|e| BadPayload::NotAPod(e.to_string()))?;
    Ok(value)
}

/// A pushed pod's specification.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineSpec {
    /// What kubeleet understands.
    pub pod: PodSpec,
    /// Everything else that stood in the payload. Kept there, handed to no engine; the node's policy looks at it.
    pub unknown: Map<String, Value>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    command: Command,
    #[serde(default)]
    environment: Environment,
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default)]
    memory: Option<Memory>,
    #[serde(default)]
    cpus: Option<Cpus>,
    #[serde(default)]
    restart: RestartPolicy,
    #[serde(default)]
    on_disconnect: OnDisconnect,
    #[serde(default)]
    stop_grace_period: Seconds,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Payload, BadPayload> {
        Payload::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn the_sample_line() {
        let line = r#"{"name":"test","uuid":"djkf…","image":"spaster/alpine-sleep","replica":3}"#;
        let payload = parse(line).unwrap();
        assert_eq!((payload.name.as_str(), payload.replica, payload.spec.is_none()), ("test", 3, true));
        assert_eq!(payload.raw, line.as_bytes());
    }

    #[test]
    fn a_service_payload_is_rebuilt_to_the_same_bytes() {
        let id = PodId::random();
        let make = || {
            let spec = SpecId::new("0123456789ab").unwrap();
            Payload::of_service(PodName::new("web").unwrap(), id.clone(), "nginx", 0, spec)
        };
        assert_eq!(make().raw, make().raw);
        assert_eq!(Payload::parse(make().raw).unwrap(), make());
    }

    #[test]
    fn unknown_fields_are_kept_and_handed_out() {
        let payload =
            parse(r#"{"name":"t","uuid":"u","image":"i","replica":0,"command":["a"],"privileged":true}"#)
                .unwrap();
        let inline = payload.inline_spec().unwrap();
        assert_eq!(inline.pod.containers[0].command.0, ["a"]);
        assert_eq!(inline.unknown.get("privileged"), Some(&Value::Bool(true)));
        assert!(std::str::from_utf8(&payload.raw).unwrap().contains("privileged"));
    }

    #[test]
    fn each_kind_of_nonsense_has_its_reason() {
        let cases: [(&[u8], &str); 9] = [
            (b"", "EOF"),
            (b"\xff\xfe", "not UTF-8"),
            (b"[]", "not a pod"),
            (b"{}", "missing field"),
            (br#"{"name":"t","uuid":"u","image":"i","replica":"3"}"#, "replica"),
            (br#"{"name":"t","uuid":"u","image":"i","replica":-1}"#, "-1"),
            (br#"{"name":"../t","uuid":"u","image":"i","replica":1}"#, "pod name"),
            (br#"{"name":"t","uuid":"","image":"i","replica":1}"#, "pod uuid"),
            (br#"{"name":"t","uuid":"u","image":"a b","replica":1}"#, "image"),
        ];
        for (bytes, part) in cases {
            let reason = Payload::parse(Bytes::copy_from_slice(bytes)).unwrap_err().to_string();
            assert!(reason.contains(part), "{reason:?} should mention {part:?}");
        }
        let reason = Payload::parse(Bytes::from(vec![b' '; MAX_PAYLOAD + 1])).unwrap_err().to_string();
        assert!(reason.contains("262145 bytes"), "{reason}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            if let Ok(payload) = Payload::parse(Bytes::from(bytes)) {
                let _ = payload.inline_spec();
            }
        }
    }
}
