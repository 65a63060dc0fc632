//! Checks that a pod may have its persistent volumes: an engine creates missing ones, and the pod would start
//! without its data.

use engine::{EngineVolume, RuntimeError, VolumeOwner};
use model::ids::VolumeName;
use model::service::volume::{EngineCopy, VolumeClaim, VolumeScope, VolumeVerdict};

use crate::running::table::ManagedPod;
use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;
use crate::start::files_unavailable::FilesUnavailable;

#[derive(Debug)]
pub(crate) enum VolumeObstacle {
    Waits(FilesUnavailable),
    /// The schedulers place the pod again.
    Elsewhere(String),
    Engine(RuntimeError),
    Redis,
    Fenced,
}

pub(crate) async fn check(context: &SessionContext, managed: &mut ManagedPod) -> Result<(), VolumeObstacle> {
    let Some(service) = &managed.service else { return Ok(()) };
    let claims = VolumeClaim::of_replica(service, &managed.spec, managed.payload.replica);
    let claims: Vec<VolumeClaim> = claims.into_iter().filter(|claim| !claim.scope.is_shared()).collect();
    if claims.is_empty() {
        return Ok(());
    }
    let mut volumes = Vec::with_capacity(claims.len());
    let copies = copies_of(&context.worker.own_volumes().await.map_err(VolumeObstacle::Engine)?);
    for claim in claims {
        let copy = copies.iter().find(|copy| copy.claim.name == claim.name).cloned();
        volumes.push((claim, copy));
    }
    let dead_after = context.worker.config.timing.dead_after;
    let reply = context.session.claim_volumes(&volumes, dead_after).await;
    let verdicts = match context.classify("asking for the volumes of a pod", reply) {
        ReplyClass::Reply(verdicts) => verdicts,
        ReplyClass::Transient(_) => return Err(VolumeObstacle::Redis),
        ReplyClass::Fenced => return Err(VolumeObstacle::Fenced),
        ReplyClass::Permanent(error) => {
            let message = format!("the records of its volumes are broken: {error}");
            return Err(VolumeObstacle::Waits(FilesUnavailable { reason: "VolumeUnreported", message }));
        }
    };
    for ((claim, _), verdict) in volumes.into_iter().zip(verdicts) {
        match verdict {
            VolumeVerdict::Use(None) => {}
            VolumeVerdict::Create(epoch) | VolumeVerdict::Use(Some(epoch)) => {
                managed.volume_epochs.insert(claim.source, epoch);
            }
            VolumeVerdict::Elsewhere(node) => {
                return Err(VolumeObstacle::Elsewhere(format!(
                    "the data of volume {} is on {node}, and not on {}",
                    claim.name, context.worker.node
                )));
            }
            verdict => return Err(VolumeObstacle::Waits(why_it_waits(context, &claim.name, verdict))),
        }
    }
    Ok(())
}

pub(crate) fn copies_of(volumes: &[EngineVolume]) -> Vec<EngineCopy> {
    let copy = |volume: &EngineVolume| match &volume.owner {
        VolumeOwner::Replica(claim) => {
            Some(EngineCopy { claim: claim.clone(), epoch: volume.epoch, is_mounted: false })
        }
        VolumeOwner::Pod(..) => None,
    };
    volumes.iter().filter_map(copy).collect()
}

pub(crate) fn note_mounted(context: &SessionContext, copies: &mut [EngineCopy]) {
    let of_pods: Vec<_> = context.table.map_managed(|pod| {
        let service = pod.service.clone().filter(|_| pod.handles().next().is_some())?;
        Some((service, pod.payload.replica))
    });
    for copy in copies {
        let VolumeScope::Replica(replica) = copy.claim.scope else { continue };
        copy.is_mounted =
            of_pods.iter().any(|(service, of)| *service == copy.claim.service && *of == replica);
    }
}

fn why_it_waits(context: &SessionContext, name: &VolumeName, verdict: VolumeVerdict) -> FilesUnavailable {
    let node = &context.worker.node;
    let (reason, message) = match verdict {
        VolumeVerdict::Lost { has_older: false } => (
            "VolumeLost",
            format!(
                "the container engine of {node} does not have volume {name} any more, and its data with it: \
                 `kubeleet volume rm {name}` begins anew on an empty volume"
            ),
        ),
        VolumeVerdict::Lost { has_older: true } => (
            "VolumeLost",
            format!(
                "{node} has an older copy of volume {name} than the one that is wanted: `kubeleet volume bind {name} \
                 {node}` uses the older one"
            ),
        ),
        VolumeVerdict::Conflict(nodes) => (
            "VolumeConflict",
            format!(
                "volume {name} has copies on {nodes}, and which one is wanted is not known: `kubeleet volume bind {name} \
                 NODE` chooses one"
            ),
        ),
        VolumeVerdict::Former => (
            "VolumeFormer",
            format!(
                "{node} has data of volume {name} that was given up: `kubeleet volume bind {name} {node}` uses it, and \
                 `kubeleet volume rm {name} --node {node}` removes it"
            ),
        ),
        VolumeVerdict::Removing => {
            ("VolumeElsewhere", format!("volume {name} is being removed: its pod starts when it is gone"))
        }
        VolumeVerdict::Use(_)
        | VolumeVerdict::Create(_)
        | VolumeVerdict::Elsewhere(_)
        | VolumeVerdict::Unreported => {
            ("VolumeUnreported", format!("not all nodes have said whether they have volume {name}"))
        }
    };
    FilesUnavailable { reason, message }
}
