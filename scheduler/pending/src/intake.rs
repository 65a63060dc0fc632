//! Parses payloads from the queue, and reads their specifications.

use std::borrow::Borrow;
use std::sync::Arc;

use bytes::Bytes;
use model::RedisMillis;
use model::ids::{NodeName, PodId, ServiceName};
use model::node::Resources;
use model::pod::Refusal;
use model::pod::payload::Payload;
use model::service::volume::{FormerCopy, UnreportedNode, Volume, VolumeClaim, VolumeState};
use model::spec::{PodSpec, Priority};
use placement::{
    BoundVolume, ContestedVolume, Generation, GivenUpCopy, Ordinal, PodRequest, Requirements, Target,
    UnreportedVolume, VolumePlaces,
};
use store::{Parked, Store, StoreError};

#[derive(Debug, Clone)]
pub struct PendingPod {
    pub payload: Payload,
    pub request: PodRequest,
    pub volumes: Vec<VolumeClaim>,
    /// Where its replica moves from this pod.
    pub moves_to: Option<NodeName>,
    /// Of its service, if rules that must hold count its pods, they are ordinals, or it is global.
    pub seen_mark: Option<Arc<SeenMark>>,
    /// Of its service.
    pub priority: Priority,
    /// Pods of a lower priority may be stopped for it.
    pub preempts: bool,
    /// Room is kept for it on its target.
    pub has_room: bool,
    /// When it began to wait, if that was read: see [`read_waits`](crate::read_waits).
    pub since: Option<RedisMillis>,
}

/// See [`CountedAssignment`](store::CountedAssignment).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenMark {
    pub own: String,
    /// Of services that its pods keep away from or must be near to.
    pub related: Vec<(ServiceName, String)>,
    /// Pods of other services wait for its pods.
    pub is_awaited: bool,
}

impl SeenMark {
    pub(crate) fn of(own: String) -> Self {
        Self { own, ..Self::default() }
    }
}

impl PendingPod {
    pub(crate) fn is_global(&self) -> bool {
        matches!(self.request.target, Some(Target::Only(_) | Target::Nowhere))
    }
}

impl Borrow<PodRequest> for PendingPod {
    fn borrow(&self) -> &PodRequest {
        &self.request
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct InvalidPod {
    pub raw: Bytes,
    pub id: Option<PodId>,
    pub reason: String,
}

/// Each list is in the order of the queue.
#[derive(Debug, Default)]
pub struct Intake {
    pub pending: Vec<PendingPod>,
    pub invalid: Vec<InvalidPod>,
    pub without_spec: Vec<Parked>,
}

impl Intake {
    /// A faulty specification affects only its own pods.
    pub async fn read(store: &Store, payloads: Vec<Bytes>) -> Result<Self, StoreError> {
        let mut intake = Self::default();
        let mut parsed = Vec::with_capacity(payloads.len());
        for raw in payloads {
            match Payload::parse(raw.clone()) {
                Ok(payload) => parsed.push(payload),
                Err(error) => intake.invalid.push(InvalidPod { raw, id: None, reason: error.to_string() }),
            }
        }
        store.read_pod_specs(parsed.iter().filter_map(|payload| payload.spec.as_ref())).await?;
        for payload in parsed {
            intake.add(store, payload).await?;
        }
        locate_volumes(store, &mut intake.pending).await?;
        Ok(intake)
    }

    async fn add(&mut self, store: &Store, payload: Payload) -> Result<(), StoreError> {
        let Some(spec) = &payload.spec else {
            match pushed_pod(payload) {
                Ok(pod) => self.pending.push(pod),
                Err(invalid) => self.invalid.push(invalid),
            }
            return Ok(());
        };
        // Cached, unless missing or unreadable.
        let message = match store.pod_spec(spec).await {
            Ok(Some(spec)) => {
                // A service's pods have its name.
                let service = payload.service();
                self.pending.push(pending_pod(payload, &spec, service));
                return Ok(());
            }
            Ok(None) => format!("the pod's specification is missing: there is no key spec:{spec}"),
            Err(error @ (StoreError::WrongType { .. } | StoreError::Corrupt { .. })) => {
                format!("the pod's specification is unreadable: {error}")
            }
            Err(error) => return Err(error),
        };
        // If the record is missing too, the script says so.
        self.without_spec.push(parked(payload, Resources::default(), "NoSpecification", message));
        Ok(())
    }
}

pub(crate) fn pushed_pod(payload: Payload) -> Result<PendingPod, InvalidPod> {
    match payload.inline_spec() {
        Ok(inline) => Ok(pending_pod(payload, &inline.pod, None)),
        Err(error) => Err(InvalidPod { raw: payload.raw, id: Some(payload.id), reason: error.to_string() }),
    }
}

pub fn parked(payload: Payload, request: Resources, reason: &str, message: String) -> Parked {
    let refusals = vec![Refusal { reason: reason.to_owned(), count: 0, nodes: Vec::new() }];
    Parked { payload, request, refusals, message, class: None }
}

/// A pod waits while a volume's record is unreadable.
pub async fn locate_volumes(store: &Store, pods: &mut [PendingPod]) -> Result<(), StoreError> {
    let names: Vec<_> = pods.iter().flat_map(|pod| &pod.volumes).map(|claim| claim.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let records = store.volumes(&names).await?;
    // A shared volume is on no node.
    let is_certain = |claim: &VolumeClaim, record: &Result<Option<Volume>, StoreError>| {
        claim.scope.is_shared()
            || record.as_ref().is_ok_and(|volume| volume.as_ref().is_some_and(|volume| !volume.is_restored))
    };
    let mut claims = pods.iter().flat_map(|pod| &pod.volumes).zip(records.iter());
    let (unreported, copies) = if claims.all(|(claim, record)| is_certain(claim, record)) {
        (Vec::new(), Vec::new())
    } else {
        (store.unreported_nodes().await?, store.former_copies().await?)
    };
    let mut records = records.into_iter();
    for pod in pods {
        let of_pod: Vec<_> = pod.volumes.iter().zip(records.by_ref()).collect();
        let contested = of_pod.iter().find_map(|(claim, record)| contested(claim, record));
        let nowhere = of_pod.iter().filter(|(_, record)| matches!(record, Ok(None))).map(|(claim, _)| *claim);
        let given_up = nowhere.flat_map(|claim| given_up(claim, &copies)).collect();
        let uncertain = of_pod.iter().filter(|(claim, record)| !is_certain(claim, record));
        let unreported = uncertain
            .map(|(claim, _)| unreported_volume(claim, &unreported, &copies))
            .find(|volume| !volume.nodes.is_empty());
        let bound = of_pod.into_iter().filter_map(|(claim, record)| bound(claim, record)).collect();
        let places = VolumePlaces { bound, unreported, contested, given_up };
        pod.request.requirements.volumes = places.into_requirement();
    }
    Ok(())
}

/// The machines that have not reported, or whose copy must still be settled.
fn unreported_volume(
    claim: &VolumeClaim,
    unreported: &[UnreportedNode],
    copies: &[FormerCopy],
) -> UnreportedVolume {
    let unsettled = copies.iter().filter(|copy| copy.volume == claim.name && !copy.is_given_up);
    let unsettled = unsettled.map(|copy| UnreportedNode { name: copy.node.clone(), is_former: false });
    let mut nodes: Vec<UnreportedNode> = unreported.iter().cloned().chain(unsettled).collect();
    nodes.sort();
    nodes.dedup();
    UnreportedVolume { name: claim.name.clone(), nodes }
}

pub(crate) fn bound(claim: &VolumeClaim, record: Result<Option<Volume>, StoreError>) -> Option<BoundVolume> {
    let name = claim.name.clone();
    match record {
        Ok(volume) => {
            let volume = volume?;
            let is_removing = volume.state == VolumeState::Removing;
            let is_contested = !volume.conflict.is_empty();
            let node = volume.node.filter(|_| !is_contested && (is_removing || !claim.scope.is_shared()))?;
            Some(BoundVolume { name, node, engine_id: volume.engine_id, is_removing })
        }
        Err(error) => {
            tracing::error!(volume = %name, %error, "a pod waits, because the record of its volume is broken");
            let node = NodeName::new("unknown").expect("a word is a name");
            Some(BoundVolume { name, node, engine_id: None, is_removing: true })
        }
    }
}

fn contested(claim: &VolumeClaim, record: &Result<Option<Volume>, StoreError>) -> Option<ContestedVolume> {
    let volume = record.as_ref().ok()?.as_ref().filter(|volume| !volume.conflict.is_empty())?;
    Some(ContestedVolume { name: claim.name.clone(), nodes: volume.conflict.clone() })
}

fn given_up<'a>(
    claim: &'a VolumeClaim,
    copies: &'a [FormerCopy],
) -> impl Iterator<Item = GivenUpCopy> + use<'a> {
    let of_volume = copies.iter().filter(|copy| copy.is_given_up && copy.volume == claim.name);
    of_volume.map(|copy| GivenUpCopy { name: copy.volume.clone(), node: copy.node.clone() })
}

pub(crate) fn pending_pod(payload: Payload, spec: &PodSpec, service: Option<ServiceName>) -> PendingPod {
    let volumes = service.as_ref().map(|service| VolumeClaim::of_replica(service, spec, payload.replica));
    let generation = service.zip(payload.spec.clone());
    let generation = generation.map(|(service, spec)| Generation { service, spec });
    let rule = spec.stateful.clone().filter(|_| generation.is_some()).map(Arc::new);
    let ordinal = rule.map(|rule| Ordinal { index: payload.replica, rule });
    let (id, requirements) = (payload.id.clone(), Requirements::of(spec));
    // Until its service is read.
    let target = (spec.mode.is_global() && generation.is_some()).then_some(Target::Nowhere);
    let request = PodRequest { id, requirements, generation, ordinal, target };
    PendingPod {
        payload,
        request,
        volumes: volumes.unwrap_or_default(),
        moves_to: None,
        seen_mark: None,
        priority: Priority::default(),
        preempts: false,
        has_room: false,
        since: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use model::node::Resources;

    use super::*;

    fn read_pushed(json: &str) -> Result<PendingPod, InvalidPod> {
        pushed_pod(Payload::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap())
    }

    #[test]
    fn a_pushed_pod_contains_its_requirements() {
        let json = r#"{"name":"a","uuid":"1","image":"nginx","replica":0,"memory":"64MiB","cpus":0.5}"#;
        let expected = Requirements {
            request: Resources { cpu_millis: 500, memory_bytes: 64 << 20, pids: 0, disk_bytes: 0, pods: 1 },
            ..Requirements::default()
        };
        assert_eq!(read_pushed(json).unwrap().request.requirements, expected);
        let plain = read_pushed(r#"{"name":"a","uuid":"1","image":"nginx","replica":0}"#).unwrap();
        assert!(plain.request.requirements.needs_only_image);
    }

    #[test]
    fn an_invalid_field_is_an_error_of_its_pod() {
        let json = r#"{"name":"a","uuid":"1","image":"nginx","replica":0,"memory":true}"#;
        let invalid = read_pushed(json).unwrap_err();
        assert_eq!(invalid.id, Some(PodId::new("1").unwrap()));
        assert!(invalid.reason.contains("memory"), "{}", invalid.reason);
    }
}
