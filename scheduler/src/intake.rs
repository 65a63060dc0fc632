//! From bytes in hand to pods that can be decided about: parsing, and finding out what each asks for.

use bytes::Bytes;
use common::ids::{PodId, ServiceName};
use common::node::Resources;
use common::payload::{BadPayload, Payload};
use common::spec::PodSpec;
use common::store::{Store, StoreError};

use crate::decide::PodRequest;

/// A pod that waits for a node.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// As it came through the queue.
    pub(crate) payload: Payload,
    /// What it asks for.
    pub(crate) pod: PodRequest,
}

/// A payload that can not be a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bad {
    /// The very bytes.
    pub(crate) raw: Bytes,
    /// Whose they are, where they say so much.
    pub(crate) id: Option<PodId>,
    /// Why not, for the dead letter.
    pub(crate) reason: String,
}

/// A pod whose specification can not be read.
#[derive(Debug, Clone)]
pub(crate) struct Unspecified {
    pub(crate) payload: Payload,
    pub(crate) why: String,
}

/// What was in hand, sorted. The order within each part is the order given.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) bad: Vec<Bad>,
    pub(crate) unspecified: Vec<Unspecified>,
}

impl Intake {
    /// Sorts what is in hand.
    ///
    /// # Errors
    /// Only those that concern all pods alike: a specification that can not be read is the matter of its pods.
    pub(crate) async fn read(store: &Store, taken: Vec<Bytes>) -> Result<Self, StoreError> {
        let mut intake = Self::default();
        let mut payloads = Vec::with_capacity(taken.len());
        for raw in taken {
            match Payload::parse(raw.clone()) {
                Ok(payload) => payloads.push(payload),
                Err(bad) => intake.bad.push(Bad { raw, id: None, reason: bad.to_string() }),
            }
        }
        store.read_pod_specs(payloads.iter().filter_map(|payload| payload.spec.as_ref())).await?;
        for payload in payloads {
            intake.add(store, payload).await?;
        }
        Ok(intake)
    }

    async fn add(&mut self, store: &Store, payload: Payload) -> Result<(), StoreError> {
        let Some(spec) = &payload.spec else {
            match pushed(payload) {
                Ok(waiting) => self.waiting.push(waiting),
                Err(bad) => self.bad.push(bad),
            }
            return Ok(());
        };
        // In memory by now, unless something is wrong with it.
        let why = match store.pod_spec(spec).await {
            Ok(Some(spec)) => {
                // A service's pods bear its name.
                let service = ServiceName::new(payload.name.as_str()).ok();
                self.waiting.push(waiting(payload, &spec, service));
                return Ok(());
            }
            Ok(None) => format!("its specification spec:{spec} is gone"),
            Err(error @ (StoreError::WrongType { .. } | StoreError::Corrupt { .. })) => error.to_string(),
            Err(error) => return Err(error),
        };
        self.unspecified.push(Unspecified { payload, why });
        Ok(())
    }
}

/// A pod somebody pushed: the payload itself says what it is.
fn pushed(payload: Payload) -> Result<Waiting, Bad> {
    match payload.inline_spec() {
        Ok(inline) => Ok(waiting(payload, &inline.pod, None)),
        Err(bad) => Err(bad_pod(payload, &bad)),
    }
}

fn bad_pod(payload: Payload, why: &BadPayload) -> Bad {
    Bad { raw: payload.raw, id: Some(payload.id), reason: why.to_string() }
}

fn waiting(payload: Payload, spec: &PodSpec, service: Option<ServiceName>) -> Waiting {
    let request = Resources { cpu_millis: spec.cpu_millis(), memory_bytes: spec.memory_bytes(), pods: 1 };
    let pod = PodRequest {
        id: payload.id.clone(),
        request,
        needs_only_an_image: spec.needs_only_an_image(),
        service,
    };
    Waiting { payload, pod }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn pushed_json(json: &str) -> Result<Waiting, Bad> {
        pushed(Payload::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap())
    }

    #[test]
    fn a_pushed_pod_says_itself_what_it_asks_for() {
        let json = r#"{"name":"a","uuid":"1","image":"nginx","replica":0,"memory":"64MiB","cpus":0.5}"#;
        let pod = pushed_json(json).unwrap().pod;
        assert_eq!(pod.request, Resources { cpu_millis: 500, memory_bytes: 64 << 20, pods: 1 });
        assert!(!pod.needs_only_an_image);
        let plain = pushed_json(r#"{"name":"a","uuid":"1","image":"nginx","replica":0}"#).unwrap().pod;
        assert!(plain.needs_only_an_image);
    }

    #[test]
    fn a_bad_field_is_the_pods_own_matter() {
        let bad = pushed_json(r#"{"name":"a","uuid":"1","image":"nginx","replica":0,"memory":true}"#);
        let bad = bad.unwrap_err();
        assert_eq!(bad.id, Some(PodId::new("1").unwrap()));
        assert!(bad.reason.contains("memory"), "{}", bad.reason);
    }
}
