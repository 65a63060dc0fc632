//! The secrets and configs of a container: read, decrypted, and written where the engine mounts them.

use daemon::config::RuntimeKind;
use engine::file_store::{DirectoryGuard, NewFile};
use engine::{ContainerRequest, Identity, MountedFile};
use model::spec::{ContainerSpec, FileReference, StopSignal};
use model::value::{ReadError, ValueBytes, ValueKind};

use crate::start::files_unavailable::FilesUnavailable;
use crate::worker::Worker;

pub(crate) struct ProvidedFiles {
    pub(crate) files: Vec<MountedFile>,
    _guard: Option<DirectoryGuard>,
}

pub(crate) async fn provide(
    worker: &Worker,
    request: &ContainerRequest,
) -> Result<ProvidedFiles, FilesUnavailable> {
    let wanted = wanted(worker, &request.container);
    if wanted.is_empty() {
        return Ok(ProvidedFiles { files: Vec::new(), _guard: None });
    }
    let guard = worker.files.guard(&request.identity);
    let mut new = Vec::with_capacity(wanted.len());
    for (name, kind, file) in &wanted {
        new.push(new_file(worker, name, *kind, file).await?);
    }
    let paths = worker.files.write(&request.identity, &new).map_err(not_written)?;
    let mounted = wanted.iter().zip(paths);
    let mounted = mounted.map(|((_, kind, file), source)| MountedFile { source, target: file.path(*kind) });
    Ok(ProvidedFiles { files: mounted.collect(), _guard: Some(guard) })
}

/// A reboot empties the memory of the machine. A restart does not change the version of existing files.
pub(crate) async fn provide_missing(
    worker: &Worker,
    request: &ContainerRequest,
) -> Result<(), FilesUnavailable> {
    let names: Vec<String> =
        wanted(worker, &request.container).into_iter().map(|(name, _, _)| name).collect();
    if names.is_empty() || worker.files.has_all(&request.identity, &names) {
        return Ok(());
    }
    provide(worker, request).await.map(drop)
}

pub(crate) struct Reloaded {
    pub(crate) name: String,
    pub(crate) kind: ValueKind,
    pub(crate) file: FileReference,
    pub(crate) signal: StopSignal,
}

pub(crate) fn reloaded(worker: &Worker, container: &ContainerSpec) -> Vec<Reloaded> {
    let of = |(name, kind, file): (String, ValueKind, &FileReference)| {
        Some(Reloaded { name, kind, file: file.clone(), signal: file.reload_signal()? })
    };
    wanted(worker, container).into_iter().filter_map(of).collect()
}

/// True if the container must be notified.
pub(crate) async fn reload(
    worker: &Worker,
    identity: &Identity,
    Reloaded { name, kind, file, .. }: &Reloaded,
) -> Result<bool, FilesUnavailable> {
    let new = new_file(worker, name, *kind, file).await?;
    worker.files.replace(identity, &new).map_err(not_written)
}

fn wanted<'a>(worker: &Worker, container: &'a ContainerSpec) -> Vec<(String, ValueKind, &'a FileReference)> {
    if worker.config.runtime != RuntimeKind::Docker {
        return Vec::new();
    }
    let of = |kind, files: &'a [FileReference]| files.iter().map(move |file| (kind, file));
    let all = of(ValueKind::Secret, &container.secrets).chain(of(ValueKind::Config, &container.configs));
    all.enumerate().map(|(index, (kind, file))| (format!("{index}-{}", file.source), kind, file)).collect()
}

fn not_written(message: String) -> FilesUnavailable {
    FilesUnavailable { reason: "FilesNotWritten", message }
}

async fn new_file(
    worker: &Worker,
    name: &str,
    kind: ValueKind,
    file: &FileReference,
) -> Result<NewFile, FilesUnavailable> {
    let content = read(worker, kind, file).await?;
    let mode = file.mode.unwrap_or_default().bits();
    Ok(NewFile { name: name.to_owned(), content, uid: file.uid, gid: file.gid, mode })
}

async fn read(
    worker: &Worker,
    kind: ValueKind,
    file: &FileReference,
) -> Result<ValueBytes, FilesUnavailable> {
    let (name, node) = (&file.source, &worker.node);
    let (missing, unreadable) = match kind {
        ValueKind::Secret => ("SecretMissing", "SecretUnreadable"),
        ValueKind::Config => ("ConfigMissing", "ConfigUnreadable"),
    };
    let unavailable = |reason, message| FilesUnavailable { reason, message };
    let stored = worker.store.current_value(kind, name).await;
    let stored = stored
        .map_err(|error| unavailable(unreadable, format!("the {kind} {name} cannot be read: {error}")))?;
    let stored = stored.ok_or_else(|| {
        let message = format!("there is no {kind} {name}: create it with `kubeleet {kind} create {name}`");
        unavailable(missing, message)
    })?;
    stored.open(worker.config.secret_key.as_ref()).map_err(|error| match error {
        ReadError::NoKey => unavailable(
            missing,
            format!(
                "it needs the {kind} {name}, and the worker of {node} has no key: set its KUBELEET_SECRET_KEY_FILE \
                 to a file with the cluster's key"
            ),
        ),
        ReadError::Decrypt(error) => {
            let message = format!(
                "the {kind} {name} cannot be decrypted on {node}: {error}; give all APIs and workers the same key, \
                 or rotate it"
            );
            unavailable(unreadable, message)
        }
    })
}
