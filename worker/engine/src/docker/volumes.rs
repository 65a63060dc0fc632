//! Volumes of the engine, which creates missing ones with their container, and refuses to remove one in use.

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::models::{Mount, MountTmpfsOptions, MountType, MountVolumeOptions};
use bollard::query_parameters::{ListVolumesOptionsBuilder, RemoveVolumeOptionsBuilder};
use model::ids::NodeName;
use model::spec::VolumeKind;

use super::client::EngineClient;
use super::deadlines::{READ, WRITE};
use super::errors::EngineCall;
use super::filters::label_filters;
use crate::volume::{EngineVolume, requested};
use crate::{ContainerRequest, RuntimeError};

pub(super) fn mounts(request: &ContainerRequest) -> Vec<Mount> {
    let kept = requested(request).map(|volume| Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.handle),
        target: Some(volume.mount.target.clone()),
        read_only: Some(volume.mount.read_only),
        volume_options: Some(MountVolumeOptions {
            labels: Some(volume.labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..Default::default()
        }),
        ..Default::default()
    });
    let in_memory = request.container.volumes.iter().filter(|volume| volume.kind == VolumeKind::Tmpfs);
    let in_memory = in_memory.map(|volume| Mount {
        typ: Some(MountType::TMPFS),
        target: Some(volume.target.clone()),
        read_only: Some(volume.read_only),
        tmpfs_options: Some(MountTmpfsOptions {
            size_bytes: volume.space.map(|space| i64::try_from(space.bytes()).unwrap_or(i64::MAX)),
            ..Default::default()
        }),
        ..Default::default()
    });
    // `binds` and `shared_directory` have resolved their paths.
    let binds = request.container.volumes.iter();
    let binds = binds.filter(|volume| matches!(volume.kind, VolumeKind::Bind | VolumeKind::Shared));
    let binds = binds.map(|volume| Mount {
        typ: Some(MountType::BIND),
        source: volume.source.clone(),
        target: Some(volume.target.clone()),
        read_only: Some(volume.read_only),
        ..Default::default()
    });
    kept.chain(in_memory).chain(binds).collect()
}

pub(super) async fn directory(client: &EngineClient) -> Option<PathBuf> {
    let docker = client.docker().ok()?;
    let info = client.within(EngineCall::Info, READ, docker.info()).await.ok()?;
    Some(PathBuf::from(info.docker_root_dir?).join("volumes"))
}

pub(super) async fn list(client: &EngineClient, node: &NodeName) -> Result<Vec<EngineVolume>, RuntimeError> {
    let filters: HashMap<String, Vec<String>> = label_filters(node);
    let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
    let call = client.docker()?.list_volumes(Some(options));
    let answer = client.within(EngineCall::ListVolumes, READ, call).await?;
    let volumes = answer.volumes.unwrap_or_default();
    let read = volumes.iter().filter_map(|volume| {
        EngineVolume::from_labels(&volume.name, |key| volume.labels.get(key).map(String::as_str))
    });
    Ok(read.collect())
}

pub(super) async fn remove(client: &EngineClient, handle: &str) -> Result<bool, RuntimeError> {
    let options = RemoveVolumeOptionsBuilder::default().build();
    let call = client.docker()?.remove_volume(handle, Some(options));
    match client.within(EngineCall::RemoveVolume, WRITE, call).await {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_not_found() => Ok(true),
        Err(failure) if failure.status == Some(409) => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}
