//! Files of containers as tar archives. The engine reads and writes them itself: nothing is needed in the
//! image.

use std::io;

use bollard::query_parameters::{DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};

use super::client::EngineClient;
use super::errors::{EngineCall, EngineFailure};
use crate::runtime::RuntimeError;

/// See [`crate::runtime::Runtime::unpack`]. It takes as long as the archive: its sender ends it.
pub(super) async fn unpack(
    client: &EngineClient,
    handle: &str,
    directory: &str,
    archive: BoxStream<'static, io::Result<Bytes>>,
) -> Result<(), RuntimeError> {
    // A file never takes the place of a directory, and never the other way round.
    let options =
        UploadToContainerOptionsBuilder::default().path(directory).no_overwrite_dir_non_dir("true").build();
    let call = client.docker()?.upload_to_container(handle, Some(options), bollard::body_try_stream(archive));
    let failed = |error| EngineFailure::of(EngineCall::Unpack, client.shown(), &error).error;
    call.await.map_err(failed)
}

/// See [`crate::runtime::Runtime::archive`].
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
