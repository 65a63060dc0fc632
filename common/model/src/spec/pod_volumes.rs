//! The volumes of a pod's containers.

use std::collections::{BTreeMap, BTreeSet};

use super::container::{ContainerSpec, PersistentVolume, SharedVolume, VolumeKind, VolumeMount};
use super::pod::{OnDisconnect, PodSpec};
use super::units::Memory;
use super::violation::Violation;
use crate::ids::AppName;
use crate::value::ValueKind;

const MAX_VOLUMES: usize = 32;

impl PodSpec {
    /// A volume shared by containers counts once.
    pub(super) fn volume_space(&self) -> u64 {
        let (mut by_source, mut total) = (BTreeMap::new(), 0u64);
        for volume in self.volumes() {
            let is_on_node = matches!(volume.kind, VolumeKind::Local | VolumeKind::Persistent);
            let Some(space) = volume.space.filter(|_| is_on_node).map(Memory::bytes) else { continue };
            match &volume.source {
                None => total = total.saturating_add(space),
                Some(source) => {
                    let known = by_source.entry(source).or_insert(0);
                    *known = space.max(*known);
                }
            }
        }
        by_source.into_values().fold(total, u64::saturating_add)
    }

    pub fn has_shared_volumes(&self) -> bool {
        self.volumes().any(|volume| volume.kind == VolumeKind::Shared)
    }

    fn volumes(&self) -> impl Iterator<Item = &VolumeMount> {
        self.containers.iter().flat_map(|container| &container.volumes)
    }

    fn by_source(&self, kind: VolumeKind) -> BTreeMap<String, &VolumeMount> {
        let mut found = BTreeMap::new();
        for volume in self.volumes().filter(|volume| volume.kind == kind) {
            if let Some(source) = volume.source.clone() {
                found.entry(source).or_insert(volume);
            }
        }
        found
    }

    pub fn shared_volumes(&self) -> BTreeSet<SharedVolume> {
        let shared = self.by_source(VolumeKind::Shared).into_iter();
        let shared = shared.map(|(source, volume)| SharedVolume {
            source,
            app: volume.app.clone(),
            space: volume.space.map(Memory::bytes),
        });
        shared.collect()
    }

    /// Returns violations where a document names another app.
    pub(super) fn share_in_app(
        &mut self,
        app: Option<&AppName>,
        pointer_of: impl Fn(usize) -> String,
    ) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (index, container) in self.containers.iter_mut().enumerate() {
            for (at, volume) in container.volumes.iter_mut().enumerate() {
                if volume.app.as_ref().is_some_and(|named| Some(named) != app) {
                    let detail =
                        "a volume is shared in the app of its service, and no other: leave out `app`";
                    violations
                        .push(Violation::new(format!("{}/volumes/{at}/app", pointer_of(index)), detail));
                }
                volume.app = app.filter(|_| volume.kind == VolumeKind::Shared).cloned();
            }
        }
        violations
    }

    pub fn persistent_volumes(&self) -> BTreeSet<PersistentVolume> {
        let persistent = self.by_source(VolumeKind::Persistent).into_iter();
        persistent
            .map(|(source, volume)| PersistentVolume { source, space: volume.space.map(Memory::bytes) })
            .collect()
    }

    /// Two pods must not write to one persistent volume.
    pub fn default_on_disconnect(&self) -> OnDisconnect {
        let may_run_twice = self.persistent_volumes().is_empty() && self.stateful.is_none();
        if may_run_twice { OnDisconnect::Keep } else { OnDisconnect::Stop }
    }

    /// Pointers are below `/containers`.
    pub(super) fn shared_volume_violations(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (index, container) in self.containers.iter().enumerate() {
            for (at, volume) in container.volumes.iter().enumerate() {
                let before = self.containers[..index].iter().flat_map(|other| &other.volumes);
                let mut same = before.filter(|other| other.source.is_some() && other.source == volume.source);
                if let Some(other) = same.find(|other| other.kind != volume.kind) {
                    let name = volume.source.as_deref().unwrap_or_default();
                    let detail = format!(
                        "{name} is {} in another container of the pod: one source has one kind",
                        other.kind.as_str()
                    );
                    violations.push(Violation::new(format!("/containers/{index}/volumes/{at}"), detail));
                }
            }
        }
        violations
    }
}

impl ContainerSpec {
    /// Pointers are below the container.
    pub(super) fn volume_problems(&self) -> Vec<(String, Option<String>)> {
        let in_memory = self.tmpfs.as_slice().iter();
        let in_memory = in_memory.map(|entry| entry.split(':').next().unwrap_or_default().to_owned());
        let files = [(ValueKind::Secret, &self.secrets), (ValueKind::Config, &self.configs)];
        let files = files.into_iter().flat_map(|(kind, files)| files.iter().map(move |file| file.path(kind)));
        let mut targets: BTreeSet<String> = in_memory.chain(files).collect();
        let mut problems = Vec::new();
        for (at, volume) in self.volumes.iter().enumerate() {
            let is_twice = !targets.insert(volume.target.clone());
            let twice = is_twice.then(|| format!("{} is mounted twice", volume.target));
            problems.push((format!("volumes/{at}"), volume.problem().or(twice)));
        }
        let too_many = self.volumes.len() > MAX_VOLUMES;
        problems.push(("volumes".to_owned(), too_many.then(|| format!("at most {MAX_VOLUMES} volumes"))));
        problems
    }
}
