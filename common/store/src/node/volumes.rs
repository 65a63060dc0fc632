//! Persistent and shared volumes: location and removal. Assigning a pod binds its volumes.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Value, cmd};

use crate::loaded::{Loaded, all_fields};
use crate::recovery::saved_state::SavedVolume;
use crate::reply::{HashFields, corrupt, list, names, parse, read, sorted_names, unexpected, word};
use crate::scripts::{
    volume_bind, volume_copy_remove, volume_remove, volumes_claim, volumes_measured, volumes_report,
    volumes_restore,
};
use crate::server::info;
use crate::{Fenced, Session, SessionResult, Store, StoreError, keys};
use model::ids::{AppName, NodeName, PodId, ServiceName, VolumeName};
use model::node::{NodeState, SharedVolumesState};
use model::service::ServiceState;
use model::service::volume::{
    EngineCopy, FormerCopy, LocalExcess, UnreportedNode, Volume, VolumeClaim, VolumeScope, VolumeSize,
    VolumeState, VolumeVerdict,
};

const RESTORED_AT_ONCE: usize = 500;
const MAX_CHANGES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveVolumeOutcome {
    Removing,
    Removed,
    Missing,
    Used,
    NoNode,
    Conflict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindVolumeOutcome {
    Bound,
    Missing,
    Used,
    Removing,
}

/// After a change of the master this time must pass: all live nodes have registered again. One may have been
/// away for nearly the dead time when the master changed, and for as long afterwards.
fn settles_after_ms(dead_after: Duration) -> u64 {
    dead_after.as_millis() as u64 * 2
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeReport {
    pub remove: Vec<VolumeName>,
    /// Their record names another copy.
    pub elsewhere: Vec<VolumeName>,
    pub missing: Vec<VolumeName>,
    /// A report is complete if this run was known before the engine was asked.
    pub redis_run: String,
}

impl Store {
    pub async fn volume_names(&self) -> Result<Vec<VolumeName>, StoreError> {
        Ok(sorted_names(self.link.query(cmd("SMEMBERS").arg(keys::VOLUMES)).await?))
    }

    pub async fn volumes(&self, names: &[VolumeName]) -> Result<Loaded<Volume>, StoreError> {
        self.load(names, |name| all_fields(keys::volume(name)), read_volume).await
    }

    pub async fn volume(&self, name: &VolumeName) -> Result<Option<Volume>, StoreError> {
        self.volumes(std::slice::from_ref(name)).await?.only()
    }

    /// Returns machines without a report to this run of Redis.
    pub async fn unreported_nodes(&self) -> Result<Vec<UnreportedNode>, StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("INFO").arg("server");
        pipe.cmd("HMGET").arg(keys::META).arg("run_id").arg("changed_at");
        pipe.cmd("HGETALL").arg(keys::VOLUME_REPORTS);
        type Replies = (String, (Option<String>, Option<String>), Vec<(String, String)>);
        let (info, (known_run, changed_at), reports): Replies = self.link.pipeline(&pipe).await?;
        let current = info::field(&info, "run_id").unwrap_or_default();
        // As in the scripts. After a change that no script has noted yet, no node has reported.
        let is_noted = known_run.as_deref() == Some(current);
        let current = is_noted.then(|| format!("{current}:{}", changed_at.unwrap_or_default()));
        let missing = reports.into_iter().filter(|(_, run)| Some(run) != current.as_ref());
        let mut nodes: Vec<UnreportedNode> =
            missing.filter_map(|(field, _)| UnreportedNode::from_field(&field)).collect();
        nodes.sort();
        Ok(nodes)
    }

    /// No volume without a record is bound before these nodes report: they may have data of a restored
    /// cluster.
    pub async fn expect_volume_reports(
        &self,
        nodes: impl IntoIterator<Item = NodeName>,
    ) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        for node in nodes {
            pipe.cmd("HSETNX").arg(keys::VOLUME_REPORTS).arg(node.as_str()).arg("").ignore();
        }
        self.link.pipeline(&pipe).await
    }

    pub async fn nodes_with_volumes(&self) -> Result<Vec<NodeName>, StoreError> {
        Ok(sorted_names(self.link.query(cmd("HKEYS").arg(keys::VOLUME_REPORTS)).await?))
    }

    pub async fn restore_volumes(&self, saved: &[SavedVolume]) -> Result<usize, StoreError> {
        let what = "restoring volumes";
        let mut restored = 0;
        for chunk in saved.chunks(RESTORED_AT_ONCE) {
            let mut call =
                volumes_restore::Head { volumes: keys::VOLUMES, given_up: keys::GIVEN_UP_VOLUMES }.call();
            for volume in chunk {
                let SavedVolume {
                    service,
                    source,
                    replica,
                    space,
                    node,
                    engine_id,
                    epoch,
                    found,
                    given_up_at,
                } = volume;
                // An invalid name is no volume of a service.
                let Ok(name) = VolumeName::of_replica(service, source, *replica) else { continue };
                call.add(volumes_restore::Volume {
                    volume_key: keys::volume(&name),
                    name: &name,
                    service,
                    source,
                    replica: *replica,
                    space: *space,
                    node,
                    engine_id: engine_id.as_deref(),
                    epoch: *epoch,
                    found: *found,
                    given_up_at: *given_up_at,
                });
            }
            for reply in list(what, self.link.script(&call).await?)? {
                match word(what, reply)?.as_str() {
                    "restored" => restored += 1,
                    "present" => {}
                    other => return Err(unexpected(what, other)),
                }
            }
        }
        Ok(restored)
    }

    pub async fn backup_volumes(&self) -> Result<Vec<SavedVolume>, StoreError> {
        let volumes = self.volumes(&self.volume_names().await?).await?.found();
        let usable = volumes.into_iter().filter(|volume| volume.state == VolumeState::Bound);
        let given_up: HashMap<String, f64> = self
            .link
            .query(cmd("ZRANGE").arg(keys::GIVEN_UP_VOLUMES).arg(0).arg(-1).arg("WITHSCORES"))
            .await?;
        // Nodes with the shared directory report its volumes.
        let saved = |Volume { claim, node, engine_id, epoch, is_found, .. }| {
            let (replica, node) = (claim.scope.replica()?, node?);
            Some(SavedVolume {
                service: claim.service,
                source: claim.source,
                replica,
                space: claim.space,
                node,
                engine_id,
                epoch,
                found: is_found,
                given_up_at: given_up.get(claim.name.as_str()).map(|at| *at as u64),
            })
        };
        Ok(usable.filter_map(saved).collect())
    }

    /// Returns for how long these volumes have had no service. All others start at zero.
    pub async fn count_abandoned_volumes(
        &self,
        abandoned: &[VolumeName],
        passed: Duration,
    ) -> Result<Vec<(VolumeName, Duration)>, StoreError> {
        let mut counts: HashMap<Vec<u8>, Vec<u8>> =
            self.link.query(cmd("HGETALL").arg(keys::ABANDONED_VOLUMES)).await?;
        let mut count = |name: &VolumeName| {
            let before = counts.remove(name.as_str().as_bytes());
            let before: u64 = before.and_then(|count| parse(&count)).unwrap_or(0);
            (name.clone(), before.saturating_add(passed.as_secs()))
        };
        let counted: Vec<(VolumeName, u64)> = abandoned.iter().map(&mut count).collect();
        let mut pipe = redis::pipe();
        for gone in counts.keys() {
            pipe.cmd("HDEL").arg(keys::ABANDONED_VOLUMES).arg(gone).ignore();
        }
        for (name, seconds) in &counted {
            pipe.cmd("HSET").arg(keys::ABANDONED_VOLUMES).arg(name.as_str()).arg(seconds).ignore();
        }
        // redis rejects an empty pipeline.
        if !pipe.is_empty() {
            let () = self.link.pipeline(&pipe).await?;
        }
        Ok(counted.into_iter().map(|(name, seconds)| (name, Duration::from_secs(seconds))).collect())
    }

    /// From now on a missing service counts as deleted, not lost.
    pub async fn note_known_services(&self, volumes: &[VolumeName]) -> Result<(), StoreError> {
        if volumes.is_empty() {
            return Ok(());
        }
        let mut pipe = redis::pipe();
        for volume in volumes {
            pipe.cmd("HDEL").arg(keys::volume(volume)).arg("recovered").ignore();
        }
        self.link.pipeline(&pipe).await
    }

    pub async fn abandoned_volumes(&self) -> Result<HashMap<VolumeName, Duration>, StoreError> {
        let counts: HashMap<Vec<u8>, Vec<u8>> =
            self.link.query(cmd("HGETALL").arg(keys::ABANDONED_VOLUMES)).await?;
        let read = |(name, seconds): (Vec<u8>, Vec<u8>)| {
            Some((parse(&name)?, Duration::from_secs(parse(&seconds)?)))
        };
        Ok(counts.into_iter().filter_map(read).collect())
    }

    /// Fails if a pod uses it or will. The record goes after the data, or at once if the node is gone.
    pub async fn remove_volume(&self, name: &VolumeName) -> Result<RemoveVolumeOutcome, StoreError> {
        self.remove(name, false).await
    }

    /// The service is being deleted. Volumes in use go with their pods; those of an app stay.
    pub async fn remove_volumes_of(&self, service: &ServiceName) -> Result<usize, StoreError> {
        let names = self.volume_names().await?;
        let mut removed = 0;
        for volume in self.volumes(&names).await?.found() {
            if volume.claim.service == *service && volume.claim.scope != VolumeScope::App {
                self.remove(&volume.claim.name, true).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    async fn remove(&self, name: &VolumeName, is_forced: bool) -> Result<RemoveVolumeOutcome, StoreError> {
        let what = "removing a volume";
        for _ in 0..MAX_CHANGES {
            let Some(volume) = self.volume(name).await? else { return Ok(RemoveVolumeOutcome::Missing) };
            if !volume.conflict.is_empty() {
                return Ok(RemoveVolumeOutcome::Conflict);
            }
            let VolumeUse { users, is_mounted, is_wanted } = self.use_of(&volume.claim).await?;
            let Some(node) = self.node_to_remove(&volume).await? else {
                return Ok(RemoveVolumeOutcome::NoNode);
            };
            let mut call = volume_remove::Head {
                volume_key: keys::volume(name),
                volumes: keys::VOLUMES,
                removals: keys::removals(&node),
                former_removals: keys::removals(volume.node.as_ref().unwrap_or(&node)),
                node_key: keys::node(&node),
                given_up: keys::GIVEN_UP_VOLUMES,
                problems: keys::VOLUME_PROBLEMS,
                name,
                node: &node,
                former_node: volume.node.as_ref(),
                service: &volume.claim.service,
                replica: volume.claim.scope.to_string(),
                is_mounted,
                is_wanted,
                is_forced,
            }
            .call();
            for user in &users {
                call.add(volume_remove::User {
                    slots: keys::slots(user),
                    slot: volume.claim.scope.replica(),
                });
            }
            match word(what, self.link.script(&call).await?)?.as_str() {
                "REMOVING" => return Ok(RemoveVolumeOutcome::Removing),
                "OK" => return Ok(RemoveVolumeOutcome::Removed),
                "MISSING" => return Ok(RemoveVolumeOutcome::Missing),
                "USED" => return Ok(RemoveVolumeOutcome::Used),
                "CHANGED" => {}
                other => return Err(unexpected(what, other)),
            }
        }
        Err(corrupt(what, format!("volume {name} changes its node all the time")))
    }

    pub async fn former_copies(&self) -> Result<Vec<FormerCopy>, StoreError> {
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            self.link.query(cmd("HGETALL").arg(keys::VOLUME_COPIES)).await?;
        let read = |(field, value): (Vec<u8>, Vec<u8>)| {
            FormerCopy::from_field(&String::from_utf8(field).ok()?, &String::from_utf8(value).ok()?)
        };
        let mut copies: Vec<FormerCopy> = fields.into_iter().filter_map(read).collect();
        copies.sort_by(|one, other| (&one.volume, &one.node).cmp(&(&other.volume, &other.node)));
        if copies.is_empty() {
            return Ok(copies);
        }
        let names: Vec<&str> = copies.iter().map(|copy| copy.volume.as_str()).collect();
        let given_up: Vec<Option<f64>> =
            self.link.query(cmd("ZMSCORE").arg(keys::GIVEN_UP_VOLUMES).arg(names)).await?;
        for (copy, at) in copies.iter_mut().zip(given_up) {
            copy.is_given_up = at.is_some_and(|at| copy.epoch.is_none_or(|epoch| epoch as f64 <= at));
        }
        Ok(copies)
    }

    /// Returns lost and conflicting ones.
    pub async fn volumes_with_problems(&self) -> Result<Vec<Volume>, StoreError> {
        let names = sorted_names(self.link.query(cmd("SMEMBERS").arg(keys::VOLUME_PROBLEMS)).await?);
        let volumes = self.volumes(&names).await?.found().into_iter();
        Ok(volumes.filter(|volume| volume.is_lost || !volume.conflict.is_empty()).collect())
    }

    /// Other copies are given up, but stay.
    pub async fn bind_volume(
        &self,
        claim: &VolumeClaim,
        node: &NodeName,
    ) -> Result<BindVolumeOutcome, StoreError> {
        let what = "choosing a copy of a volume";
        let slots = keys::slots(&claim.service);
        for _ in 0..MAX_CHANGES {
            let of_replica = [claim.scope.to_string(), format!("{}+", claim.scope)];
            let pods: Vec<Option<String>> =
                self.link.query(cmd("HMGET").arg(&slots).arg(&of_replica)).await?;
            let mut call = volume_bind::Head {
                volume_key: keys::volume(&claim.name),
                volumes: keys::VOLUMES,
                copies: keys::VOLUME_COPIES,
                given_up: keys::GIVEN_UP_VOLUMES,
                problems: keys::VOLUME_PROBLEMS,
                node_key: keys::node(node),
                removals: keys::removals(node),
                slots: &slots,
                name: &claim.name,
                service: &claim.service,
                source: &claim.source,
                replica: claim.scope.to_string(),
                node,
            }
            .call();
            for pod in pods.into_iter().flatten().filter_map(|pod| PodId::new(pod).ok()) {
                call.add(volume_bind::Pod { pod_key: keys::pod(&pod), uuid: &pod });
            }
            match word(what, self.link.script(&call).await?)?.as_str() {
                "OK" | "BOUND" => return Ok(BindVolumeOutcome::Bound),
                "MISSING" => return Ok(BindVolumeOutcome::Missing),
                "USED" => return Ok(BindVolumeOutcome::Used),
                "REMOVING" => return Ok(BindVolumeOutcome::Removing),
                "CHANGED" => {}
                other => return Err(unexpected(what, other)),
            }
        }
        Err(corrupt(what, format!("the pods of volume {} change all the time", claim.name)))
    }

    pub async fn remove_volume_copy(
        &self,
        claim: &VolumeClaim,
        node: &NodeName,
    ) -> Result<RemoveVolumeOutcome, StoreError> {
        let what = "removing a copy of a volume";
        let call = volume_copy_remove::Head {
            copies: keys::VOLUME_COPIES,
            removals: keys::removals(node),
            node_key: keys::node(node),
            name: &claim.name,
            service: &claim.service,
            node,
        };
        match word(what, self.link.script(&call.call()).await?)?.as_str() {
            "REMOVING" => Ok(RemoveVolumeOutcome::Removing),
            "OK" => Ok(RemoveVolumeOutcome::Removed),
            "MISSING" => Ok(RemoveVolumeOutcome::Missing),
            other => Err(unexpected(what, other)),
        }
    }

    /// Shared data is removed by the node asked before, otherwise by the first with the directory.
    async fn node_to_remove(&self, volume: &Volume) -> Result<Option<NodeName>, StoreError> {
        if !volume.claim.scope.is_shared() {
            return Ok(volume.node.clone());
        }
        let nodes = self.nodes(&self.node_names().await?).await?.found();
        let able = nodes.into_iter().filter(|node| {
            node.state == NodeState::Alive && node.shared_volumes == Some(SharedVolumesState::Ready)
        });
        let mut able: Vec<NodeName> = able.map(|node| node.name).collect();
        able.sort();
        let asked = able.iter().position(|node| Some(node) == volume.node.as_ref()).unwrap_or(0);
        Ok((!able.is_empty()).then(|| able.swap_remove(asked)))
    }

    async fn use_of(&self, claim: &VolumeClaim) -> Result<VolumeUse, StoreError> {
        let candidates = match claim.scope {
            VolumeScope::App => self.service_names().await?,
            VolumeScope::Replica(_) | VolumeScope::Service => vec![claim.service.clone()],
        };
        let services = self.services(&candidates).await?.found();
        let (mut is_mounted, mut is_wanted) = (false, false);
        // Pods may outlive the volume in their service.
        let mut users = if claim.scope == VolumeScope::App { Vec::new() } else { candidates };
        for service in services {
            if claim.scope == VolumeScope::App
                && service.fields.app.as_ref().map(AppName::as_str) == Some(claim.service.as_str())
            {
                users.push(service.name.clone());
            }
            if service.has_volume(claim) && service.state != ServiceState::Deleting {
                is_mounted = true;
                is_wanted |= claim.scope.replica().unwrap_or(0) < service.replicas;
            }
        }
        Ok(VolumeUse { users, is_mounted, is_wanted })
    }

    /// During a removal no pod with the volume is assigned, so false stays false.
    pub async fn may_be_mounted(&self, claim: &VolumeClaim) -> Result<bool, StoreError> {
        for service in self.use_of(claim).await?.users {
            let slots: HashMap<String, String> =
                self.link.query(cmd("HGETALL").arg(keys::slots(&service))).await?;
            let mut pipe = redis::pipe();
            for pod in slots.values().filter_map(|pod| PodId::new(pod.as_str()).ok()) {
                pipe.cmd("HGET").arg(keys::pod(&pod)).arg("phase");
            }
            // redis rejects an empty pipeline.
            if pipe.is_empty() {
                continue;
            }
            let phases: Vec<Option<String>> = self.link.pipeline(&pipe).await?;
            let is_placed = |phase: &str| matches!(phase, "assigned" | "running" | "stopping");
            if phases.iter().flatten().any(|phase| is_placed(phase)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

struct VolumeUse {
    users: Vec<ServiceName>,
    /// A service that is not being deleted has it.
    is_mounted: bool,
    /// It also has the replica; any if the volume is shared.
    is_wanted: bool,
}

impl Session {
    /// `seen_run` is the run of Redis that was known before the engine was asked.
    pub async fn report_volumes(
        &self,
        present: &[EngineCopy],
        seen_run: Option<&str>,
        dead_after: Duration,
    ) -> SessionResult<VolumeReport> {
        let changes = present.iter().map(|copy| (&copy.claim, copy.epoch, copy.is_mounted, "present"));
        self.send_volumes(seen_run, true, dead_after, changes).await
    }

    pub async fn report_gone_volumes(
        &self,
        removed: &[VolumeClaim],
        missing: &[VolumeClaim],
        dead_after: Duration,
    ) -> SessionResult<VolumeReport> {
        let removed = removed.iter().map(|claim| (claim, None, false, "removed"));
        let missing = missing.iter().map(|claim| (claim, None, false, "missing"));
        self.send_volumes(None, false, dead_after, removed.chain(missing)).await
    }

    async fn send_volumes<'a>(
        &self,
        seen_run: Option<&str>,
        is_whole: bool,
        dead_after: Duration,
        changes: impl Iterator<Item = (&'a VolumeClaim, Option<u64>, bool, &'static str)>,
    ) -> SessionResult<VolumeReport> {
        let what = "reporting volumes";
        let mut call = volumes_report::Head {
            node_key: keys::node(&self.node),
            volumes: keys::VOLUMES,
            removals: keys::removals(&self.node),
            reports: keys::VOLUME_REPORTS,
            copies: keys::VOLUME_COPIES,
            given_up: keys::GIVEN_UP_VOLUMES,
            problems: keys::VOLUME_PROBLEMS,
            reported: keys::reported_volumes(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            seen_run,
            is_whole,
            settle_after_ms: settles_after_ms(dead_after),
        }
        .call();
        for (claim, epoch, mounted, change) in changes {
            call.add(volumes_report::Volume {
                volume_key: keys::volume(&claim.name),
                name: &claim.name,
                service: &claim.service,
                source: &claim.source,
                replica: claim.scope.to_string(),
                space: claim.space,
                epoch,
                mounted,
                change,
            });
        }
        let rest = match self.run(what, &call).await? {
            Ok(rest) => rest,
            Err(fenced) => return Ok(Err(fenced)),
        };
        let (remove, elsewhere, redis_run, missing) = read(what, Value::Array(rest))?;
        let (remove, elsewhere, missing) = (names(remove), names(elsewhere), names(missing));
        Ok(Ok(VolumeReport { remove, elsewhere, missing, redis_run }))
    }

    /// Takes the engine's copies. Returns one verdict per volume.
    pub async fn claim_volumes(
        &self,
        volumes: &[(VolumeClaim, Option<EngineCopy>)],
        dead_after: Duration,
    ) -> SessionResult<Vec<VolumeVerdict>> {
        let what = "asking for volumes";
        let mut call = volumes_claim::Head {
            node_key: keys::node(&self.node),
            volumes: keys::VOLUMES,
            reports: keys::VOLUME_REPORTS,
            copies: keys::VOLUME_COPIES,
            given_up: keys::GIVEN_UP_VOLUMES,
            problems: keys::VOLUME_PROBLEMS,
            node: &self.node,
            incarnation: &self.incarnation,
            settle_after_ms: settles_after_ms(dead_after),
        }
        .call();
        for (claim, copy) in volumes {
            call.add(volumes_claim::Volume {
                volume_key: keys::volume(&claim.name),
                name: &claim.name,
                service: &claim.service,
                source: &claim.source,
                replica: claim.scope.to_string(),
                space: claim.space,
                is_present: copy.is_some(),
                epoch: copy.as_ref().and_then(|copy| copy.epoch),
            });
        }
        let rest = match self.run(what, &call).await? {
            Ok(rest) => rest,
            Err(fenced) => return Ok(Err(fenced)),
        };
        let verdicts: Vec<(String, String)> = read(what, Value::Array(rest))?;
        let verdicts = verdicts.iter().map(|(verdict, detail)| read_verdict(what, verdict, detail));
        Ok(Ok(verdicts.collect::<Result<_, _>>()?))
    }
}

fn read_verdict(what: &str, verdict: &str, detail: &str) -> Result<VolumeVerdict, StoreError> {
    Ok(match verdict {
        "use" => VolumeVerdict::Use(detail.parse().ok()),
        "create" => {
            let epoch = detail.parse().map_err(|_| corrupt(what, format!("{detail:?} is no epoch")))?;
            VolumeVerdict::Create(epoch)
        }
        "lost" => VolumeVerdict::Lost { has_older: detail == "older" },
        "conflict" => VolumeVerdict::Conflict(detail.replace(' ', " and ")),
        "unreported" => VolumeVerdict::Unreported,
        "former" => VolumeVerdict::Former,
        "elsewhere" => VolumeVerdict::Elsewhere(detail.to_owned()),
        "removing" => VolumeVerdict::Removing,
        other => return Err(unexpected(what, other)),
    })
}

impl Session {
    /// `local` have exceeded their space since the last call.
    pub async fn report_volume_sizes(
        &self,
        persistent: &[VolumeSize],
        local: &[LocalExcess],
    ) -> SessionResult<()> {
        let what = "reporting the sizes of volumes";
        let mut call = volumes_measured::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            volume_count: persistent.len(),
        }
        .call();
        for VolumeSize { name, used, over } in persistent {
            call.add(volumes_measured::Volume { volume_key: keys::volume(name), name, used: *used, over });
        }
        for LocalExcess { pod, over } in local {
            call.add(volumes_measured::Excess { pod_key: keys::pod(pod), uuid: pod, over });
        }
        match word(what, self.store.link.script(&call).await?)?.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "OK" => Ok(Ok(())),
            other => Err(unexpected(what, other)),
        }
    }
}

pub(crate) fn read_volume(name: &VolumeName, reply: Value) -> Result<Option<Volume>, StoreError> {
    let what = format!("volume {name}");
    let Some(fields) = HashFields::read(&what, reply)? else { return Ok(None) };
    let space = match fields.text("space").as_str() {
        "" => None,
        _ => Some(fields.number("space")?),
    };
    let claim = VolumeClaim {
        name: name.clone(),
        service: fields.parse("service")?,
        source: fields.text("source"),
        scope: fields.parse("replica")?,
        space,
    };
    let state = match fields.text("state").as_str() {
        "removing" => VolumeState::Removing,
        _ => VolumeState::Bound,
    };
    let node = fields.parse_opt("node")?;
    let conflict = fields.text("conflict");
    let conflict: Vec<NodeName> = conflict.split(' ').filter_map(|node| NodeName::new(node).ok()).collect();
    if node.is_none() && !claim.scope.is_shared() && conflict.is_empty() {
        return Err(corrupt(&what, "it names no node"));
    }
    Ok(Some(Volume {
        claim,
        node,
        engine_id: fields.parse_opt("engine_id")?,
        state,
        used: fields.parse_opt("used")?,
        over: fields.parse_opt("over")?,
        is_restored: fields.text("restored") == "1",
        epoch: fields.parse_opt("epoch").unwrap_or_default(),
        is_found: fields.text("found") == "1",
        is_lost: !fields.text("lost").is_empty(),
        is_recovered: fields.text("recovered") == "1",
        conflict,
        created_at: fields.number("created_at")?,
    }))
}
