//! Read-only mounts of files into a container. Pure.

use bollard::models::{Mount, MountType};

use crate::{ContainerRequest, MountedFile};

pub(super) fn mounts(request: &ContainerRequest) -> Vec<Mount> {
    let mount = |file: &MountedFile| Mount {
        target: Some(file.target.clone()),
        source: Some(file.source.display().to_string()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        ..Default::default()
    };
    request.files.iter().map(mount).collect()
}
