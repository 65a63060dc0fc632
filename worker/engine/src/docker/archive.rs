//! Copies files to and from containers as tar archives. The engine does it: the image needs no tools.

use std::io;

use bollard::query_parameters::{DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use model::spec::FolderOwner;

use super::client::EngineClient;
use super::errors::{EngineCall, EngineFailure};
use crate::RuntimeError;

/// No deadline: the sender of the archive ends it.
pub(super) async fn unpack(
    client: &EngineClient,
    handle: &str,
    directory: &str,
    archive: BoxStream<'static, io::Result<Bytes>>,
) -> Result<(), RuntimeError> {
    let options =
        UploadToContainerOptionsBuilder::default().path(directory).no_overwrite_dir_non_dir("true").build();
    let call = client.docker()?.upload_to_container(handle, Some(options), bollard::body_try_stream(archive));
    let failed = |error| EngineFailure::of(EngineCall::Unpack, client.shown(), &error).error;
    call.await.map_err(failed)
}

/// The container must never have started.
pub(super) async fn own_folder(
    client: &EngineClient,
    handle: &str,
    path: &str,
    owner: FolderOwner,
) -> Result<(), RuntimeError> {
    let path = path.trim_end_matches('/');
    // Engines apply owners from the archive, but not to the folder that it is written to.
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    header.set_uid(owner.uid.into());
    header.set_gid(owner.gid.into());
    header.set_mode(owner.mode);
    let mut archive = tar::Builder::new(Vec::new());
    let failed =
        |error: io::Error| RuntimeError::Failed(format!("the owner of {path} cannot be set: {error}"));
    archive.append_data(&mut header, format!("{name}/"), io::empty()).map_err(failed)?;
    let bytes = Bytes::from(archive.into_inner().map_err(failed)?);
    let parent = if parent.is_empty() { "/" } else { parent };
    unpack(client, handle, parent, stream::once(async move { Ok(bytes) }).boxed()).await
}

pub(super) async fn read(
    client: &EngineClient,
    handle: &str,
    path: &str,
) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
    let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
    let host = client.shown().to_owned();
    let pieces = client.docker()?.clone().download_from_container(handle, Some(options));
    let failed = move |error| EngineFailure::of(EngineCall::Archive, &host, &error).error;
    Ok(pieces.map(move |piece| piece.map_err(&failed)).boxed())
}
