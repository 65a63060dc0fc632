//! Persistent volumes: where their data is, and their removal. Assigning a pod binds its volumes.

use redis::{Value, cmd};

use super::reply::{Fields, corrupt, names, read, unexpected, verdict, word};
use super::scripts::{volume_remove, volumes_report};
use super::{Fenced, Session, SessionResult, Store, StoreError, keys};
use crate::ids::{ServiceName, VolumeName};
use crate::service::ServiceState;
use crate::volume::{Volume, VolumeClaim, VolumeState};

/// Records that are read in one round trip.
const RECORDS_PER_READ: usize = 1000;
/// How often a removal begins again because the volume moved meanwhile.
const MAX_CHANGES: usize = 5;

/// The result of [`Store::remove_volume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveVolumeOutcome {
    /// Its node removes it.
    Removing,
    /// It is gone: its node is not in the cluster any more.
    Removed,
    /// There is no such volume.
    Missing,
    /// A pod of its service uses it, or is about to.
    Used,
}

/// What a node is to know about its volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeReport {
    /// Volumes that the node is to remove.
    pub remove: Vec<VolumeName>,
    /// Volumes that it has and that are bound to another node.
    pub elsewhere: Vec<VolumeName>,
}

impl Store {
    /// Returns the names of all persistent volumes, sorted.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn volume_names(&self) -> Result<Vec<VolumeName>, StoreError> {
        let mut found: Vec<VolumeName> = names(self.link.query(cmd("SMEMBERS").arg(keys::VOLUMES)).await?);
        found.sort();
        Ok(found)
    }

    /// Returns the records of these volumes, in this order; `None` for one that does not exist. An unreadable record
    /// is an error of its own.
    ///
    /// # Errors
    /// Only those that retrying may help, see [`StoreError::is_transient`].
    pub async fn volumes_each(
        &self,
        names: &[VolumeName],
    ) -> Result<Vec<Result<Option<Volume>, StoreError>>, StoreError> {
        let mut records = Vec::with_capacity(names.len());
        for chunk in names.chunks(RECORDS_PER_READ) {
            let mut pipe = redis::pipe();
            for name in chunk {
                pipe.cmd("HGETALL").arg(keys::volume(name));
            }
            let replies = self.link.pipeline_each(pipe).await?;
            records.extend(chunk.iter().zip(replies).map(|(name, reply)| read_volume(name, reply?)));
        }
        Ok(records)
    }

    /// Returns one volume, if it exists.
    ///
    /// # Errors
    /// `Corrupt` if its record is unreadable; see [`StoreError`].
    pub async fn volume(&self, name: &VolumeName) -> Result<Option<Volume>, StoreError> {
        self.volumes_each(std::slice::from_ref(name)).await?.pop().unwrap_or(Ok(None))
    }

    /// Asks the node of a volume to remove its data, unless a pod uses it or is about to. The record goes when that
    /// is done; if the node is none any more, at once.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn remove_volume(&self, name: &VolumeName) -> Result<RemoveVolumeOutcome, StoreError> {
        self.remove(name, false).await
    }

    /// As [`Store::remove_volume`] for all volumes of a service that is being deleted, also those that its last pods
    /// still use: each is removed when its pod is gone. Returns how many there are.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn remove_volumes_of(&self, service: &ServiceName) -> Result<usize, StoreError> {
        let names = self.volume_names().await?;
        let volumes = self.volumes_each(&names).await?;
        let mut removed = 0;
        for volume in volumes.into_iter().filter_map(|volume| volume.ok().flatten()) {
            if volume.claim.service == *service {
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
            let (is_mounted, is_wanted) = self.use_of(&volume.claim).await?;
            let remove = volume_remove::Head {
                volume_key: keys::volume(name),
                volumes: keys::VOLUMES,
                removals: keys::removals(&volume.node),
                node_key: keys::node(&volume.node),
                slots: keys::slots(&volume.claim.service),
                name,
                node: &volume.node,
                service: &volume.claim.service,
                replica: volume.claim.replica,
                is_mounted,
                is_wanted,
                is_forced,
            };
            match word(what, self.link.script(&remove.call()).await?)?.as_str() {
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

    /// Returns whether the service of a volume has it, and whether it also has this replica.
    async fn use_of(&self, claim: &VolumeClaim) -> Result<(bool, bool), StoreError> {
        let Some(service) = self.service(&claim.service).await? else { return Ok((false, false)) };
        let is_mounted = service.pod.persistent_volumes().iter().any(|volume| volume.source == claim.source);
        let is_wanted =
            is_mounted && service.state != ServiceState::Deleting && claim.replica < service.replicas;
        Ok((is_mounted, is_wanted))
    }
}

impl Session {
    /// Reports which persistent volumes this node's engine has, and which of those it was to remove are gone.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn report_volumes(
        &self,
        present: &[VolumeClaim],
        removed: &[VolumeClaim],
    ) -> SessionResult<VolumeReport> {
        let what = "reporting volumes";
        let mut call = volumes_report::Head {
            node_key: keys::node(&self.node),
            volumes: keys::VOLUMES,
            removals: keys::removals(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
        }
        .call();
        let present = present.iter().map(|claim| (claim, false));
        for (claim, removed) in present.chain(removed.iter().map(|claim| (claim, true))) {
            call.add(volumes_report::Volume {
                volume_key: keys::volume(&claim.name),
                name: &claim.name,
                service: &claim.service,
                source: &claim.source,
                replica: claim.replica,
                space: claim.space,
                removed,
            });
        }
        let (word, rest) = verdict(what, self.store.link.script(&call).await?)?;
        match word.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "OK" => {
                let mut lists = rest.into_iter();
                let mut next = || -> Result<Vec<VolumeName>, StoreError> {
                    Ok(names(read(what, lists.next().unwrap_or(Value::Nil))?))
                };
                Ok(Ok(VolumeReport { remove: next()?, elsewhere: next()? }))
            }
            other => Err(unexpected(what, other)),
        }
    }
}

fn read_volume(name: &VolumeName, reply: Value) -> Result<Option<Volume>, StoreError> {
    let what = format!("volume {name}");
    let Some(fields) = Fields::read(&what, reply)? else { return Ok(None) };
    let space = match fields.text("space").as_str() {
        "" => None,
        _ => Some(fields.number("space")?),
    };
    let claim = VolumeClaim {
        name: name.clone(),
        service: fields.parse("service")?,
        source: fields.text("source"),
        replica: fields.number("replica")?,
        space,
    };
    let state = match fields.text("state").as_str() {
        "removing" => VolumeState::Removing,
        _ => VolumeState::Bound,
    };
    Ok(Some(Volume { claim, node: fields.parse("node")?, state, created_at: fields.number("created_at")? }))
}
