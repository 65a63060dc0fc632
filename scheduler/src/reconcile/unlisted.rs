//! Pods on a node whose slot, or entry in `pushed`, was deleted or lost. Such a pod would run for ever beside
//! its replacement: it is listed again if its slot is free, and stopped otherwise.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use model::ids::{PodId, ServiceName};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::Service;
use store::{RestoreOutcome, Store, StoreError};

use super::lost_payload::ObservedState;
use super::slots::{ReplicaSlot, SlotHolder};
use super::sums::PassSums;

const SURPLUS: &str = "another pod has its slot, or its service does not desire it";

/// Returns true if slots have changed.
pub(crate) async fn restore(
    store: &Store,
    service: &Service,
    slots: &[ReplicaSlot],
    observed: &ObservedState,
    sums: &mut PassSums,
) -> Result<bool, StoreError> {
    let name = Some(service.name.clone());
    // A void slot lists nothing.
    let listed = slots.iter().filter(|slot| slot.holder != SlotHolder::Void);
    let listed: HashSet<&PodId> = listed.map(|slot| &slot.id).collect();
    let mut pods = unlisted(store, &name, &listed, observed, sums).await?;
    // The first of a replica gets the slot.
    let is_other = |pod: &PodRecord| pod.spec.as_ref() != Some(&service.spec_id);
    pods.sort_by_key(|pod| (pod.phase != Phase::Running, is_other(pod), Reverse(pod.generation)));
    let ids: Vec<PodId> = pods.iter().map(|pod| pod.id.clone()).collect();
    sums.services.insert(service.name.clone());
    let outcomes = list(store, service, &ids).await?;
    let is_surplus = |outcome: &RestoreOutcome| *outcome == RestoreOutcome::Surplus;
    let surplus = pods.iter().zip(&outcomes).filter(|(_, outcome)| is_surplus(outcome));
    let stops: Vec<_> = surplus
        .map(|(pod, _)| {
            sums.add(pod);
            (pod.id.clone(), pod.node.clone())
        })
        .collect();
    store.stop_pods(name.as_ref(), &stops, "Surplus", SURPLUS).await?;
    Ok(outcomes.contains(&RestoreOutcome::Restored))
}

/// The nodes' container sets may be lost too. Returns true if slots have changed.
pub(crate) async fn restore_gone(
    store: &Store,
    service: &Service,
    gone: &[(u32, PodId)],
) -> Result<bool, StoreError> {
    let ids: Vec<PodId> = gone.iter().map(|(_, pod)| pod.clone()).collect();
    Ok(list(store, service, &ids).await?.contains(&RestoreOutcome::Restored))
}

async fn list(store: &Store, service: &Service, pods: &[PodId]) -> Result<Vec<RestoreOutcome>, StoreError> {
    let has_second = service.replacing_policy(false).max_surge(service.replicas as usize) > 0;
    store.restore_pods(Some(&service.name), has_second, pods).await
}

pub(crate) async fn restore_pushed(
    store: &Store,
    listed: &[PodId],
    observed: &ObservedState,
    sums: &mut PassSums,
) -> Result<(), StoreError> {
    let pods = unlisted(store, &None, &listed.iter().collect(), observed, sums).await?;
    pods.iter().for_each(|pod| sums.add(pod));
    let ids: Vec<PodId> = pods.into_iter().map(|pod| pod.id).collect();
    store.restore_pods(None, false, &ids).await?;
    Ok(())
}

pub(crate) async fn of_unknown_services(
    store: &Store,
    observed: &ObservedState,
    sums: &mut PassSums,
) -> Result<BTreeSet<ServiceName>, StoreError> {
    let listed: HashSet<ServiceName> = store.service_names().await?.into_iter().collect();
    let mut unknown = BTreeSet::new();
    for name in observed.on_nodes.keys().flatten() {
        if sums.services.contains(name) || listed.contains(name) && has_record(store, name).await? {
            continue;
        }
        let pods = unlisted(store, &Some(name.clone()), &HashSet::new(), observed, sums).await?;
        pods.iter().for_each(|pod| sums.add(pod));
        if !pods.is_empty() {
            unknown.insert(name.clone());
        }
    }
    Ok(unknown)
}

/// An unreadable record counts.
async fn has_record(store: &Store, name: &ServiceName) -> Result<bool, StoreError> {
    match store.service(name).await {
        Ok(service) => Ok(service.is_some()),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(true),
    }
}

async fn unlisted(
    store: &Store,
    service: &Option<ServiceName>,
    listed: &HashSet<&PodId>,
    observed: &ObservedState,
    sums: &mut PassSums,
) -> Result<Vec<PodRecord>, StoreError> {
    let on_nodes = observed.on_nodes.get(service).into_iter().flatten();
    let ids: Vec<PodId> = on_nodes.filter(|id| !listed.contains(id)).cloned().collect();
    let records = store.pods(&ids).await?;
    sums.is_incomplete |= records.iter().any(Result::is_err);
    let pods = records.found().into_iter();
    let is_placed = |pod: &PodRecord| matches!(pod.phase, Phase::Assigned | Phase::Running | Phase::Stopping);
    Ok(pods.filter(|pod| pod.service == *service && is_placed(pod)).collect())
}
