//! Copies files to and from containers as tar archives.

use std::io;

use bytes::Bytes;
use engine::Container;
use futures_util::StreamExt;
use model::stream::channel::Frame;
use store::{Channel, ChannelError, ChannelReader};
use tokio::sync::mpsc;

use crate::answer::ends::{ChannelEnd, broken, until_left};
use crate::session::context::SessionContext;

/// Of an archive that breaks off, the files before the break stay in the container.
pub(super) async fn to_container(
    context: &SessionContext,
    container: &Container,
    directory: &str,
    channel: &mut Channel,
) -> Result<ChannelEnd, String> {
    let Channel { writer, reader } = channel;
    if let Err(error) = writer.send(Frame::Started).await {
        return Ok(broken(&error));
    }
    let (pieces, archive) = mpsc::channel::<io::Result<Bytes>>(1);
    let archive = futures_util::stream::unfold(archive, |mut archive| async {
        let piece = archive.recv().await?;
        Some((piece, archive))
    });
    let mut unpacking =
        std::pin::pin!(context.worker.runtime.unpack(&container.handle, directory, archive.boxed()));
    let done = tokio::select! {
        done = &mut unpacking => done,
        stopped = read_archive(reader, pieces) => match stopped {
            Ok(()) => unpacking.await,
            Err(None) => return Ok(None),
            Err(Some(error)) => return Ok(broken(&error)),
        },
    };
    done.map(|()| Some(Frame::Exit(0))).map_err(|error| error.to_string())
}

async fn read_archive(
    reader: &mut ChannelReader,
    pieces: mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), Option<ChannelError>> {
    loop {
        // Until the receipt is dropped, at the end of the turn, the sender may not send more.
        let (frame, _receipt) = reader.next().await.map_err(Some)?;
        match frame {
            Frame::Input(data) => pass_on(&pieces, data).await,
            Frame::EndOfInput => return Ok(()),
            Frame::Closed => {
                let _ended = pieces.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                return Err(None);
            }
            _ => {}
        }
    }
}

/// If the engine stopped reading, waits forever: its call reports the reason.
async fn pass_on(pieces: &mpsc::Sender<io::Result<Bytes>>, data: Bytes) {
    if pieces.send(Ok(data)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub(super) async fn from_container(
    context: &SessionContext,
    container: &Container,
    path: &str,
    channel: &mut Channel,
) -> Result<ChannelEnd, String> {
    let opened = context.worker.runtime.archive(&container.handle, path).await;
    let mut archive = opened.map_err(|error| error.to_string())?;
    let mut piece = archive.next().await.transpose().map_err(|error| error.to_string())?;
    let Channel { writer, reader } = channel;
    let sending = async {
        writer.send(Frame::Started).await?;
        while let Some(data) = piece {
            writer.send_data(data, Frame::Output).await?;
            piece = match archive.next().await.transpose() {
                Ok(piece) => piece,
                Err(error) => return Ok(Some(Frame::Failed(error.to_string()))),
            };
        }
        Ok(Some(Frame::Exit(0)))
    };
    Ok(tokio::select! {
        sent = sending => sent.unwrap_or_else(|error| broken(&error)),
        left = until_left(reader) => left,
    })
}
