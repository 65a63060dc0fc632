//! `cp`: files as tar archives, which the container's engine reads and writes.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use client::{ChannelReceiver, ChannelSender};
use model::stream::channel::{Frame, Purpose, pieces};
use output::stderr;
use tokio::sync::mpsc;

use super::tar_files;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;
use crate::commands::objects::object_name;
use crate::exit::Exit;

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(
    after_help = "One of the two is POD:/path, the other a path of this machine. A target that ends with /, and one of \
    this machine that is a directory, keeps the name of the source.\n\
    Of a service, SERVICE:/path, a pod is chosen."
)]
pub(crate) struct CopyArgs {
    /// The source: a file, or a directory with all in it.
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Where it is copied to.
    #[arg(value_name = "TARGET")]
    target: String,
    /// Container of a pod with several; without this the first one.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum CopySide<'a> {
    Here(&'a Path),
    Pod { pod: &'a str, path: &'a str },
}

/// `POD:/path`. A local path with a colon needs a slash before it.
fn place(text: &str) -> CopySide<'_> {
    match text.split_once(':') {
        Some((pod, path)) if !pod.is_empty() && is_name(pod) => CopySide::Pod { pod, path },
        _ => CopySide::Here(Path::new(text)),
    }
}

fn is_name(text: &str) -> bool {
    !text.contains('/') || object_name::split(text).object_type.is_some()
}

pub(crate) async fn run(args: &CopyArgs, context: &mut Context<'_>) -> CommandResult {
    match (place(&args.source), place(&args.target)) {
        (CopySide::Here(source), CopySide::Pod { pod, path }) => {
            to_pod(source, pod, path, args, context).await
        }
        (CopySide::Pod { pod, path }, CopySide::Here(target)) => {
            from_pod(pod, path, target, args, context).await
        }
        (CopySide::Here(_), CopySide::Here(_)) => {
            let why = "neither path is in a pod: write one of them as POD:/path";
            Err(CommandError::Usage(why.to_owned()))
        }
        (CopySide::Pod { .. }, CopySide::Pod { .. }) => {
            let why = "both paths are in pods: copy to this machine first, and from here";
            Err(CommandError::Usage(why.to_owned()))
        }
    }
}

/// A path without a name is a directory.
fn split(path: &str) -> CommandResult<(&str, Option<&str>)> {
    if !path.starts_with('/') {
        return Err(CommandError::Usage(format!("{path:?} is no absolute path: write POD:/path")));
    }
    match path.rsplit_once('/') {
        Some((directory, "")) => Ok((if directory.is_empty() { "/" } else { directory }, None)),
        Some((_, "." | "..")) => Ok((path, None)),
        Some(("", name)) => Ok(("/", Some(name))),
        Some((directory, name)) => Ok((directory, Some(name))),
        None => Ok((path, None)),
    }
}

async fn to_pod(
    source: &Path,
    pod: &str,
    path: &str,
    args: &CopyArgs,
    context: &mut Context<'_>,
) -> CommandResult {
    let (directory, name) = split(path)?;
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", source.display());
    let resolved = source.canonicalize();
    let resolved = resolved.map_err(|error| CommandError::NotFound(cannot(&daemon::system_error(&error))))?;
    let own_name = resolved.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.map(str::to_owned).or(own_name);
    let name = name.ok_or_else(|| CommandError::Usage(cannot(&"it has no name; give the target one")))?;
    let pod = find_pod::running_pod(context, pod).await?;
    let purpose = Purpose::CopyTo { directory: directory.to_owned() };
    let container = args.container.as_deref();
    let (mut sender, mut receiver) =
        context.client.open_channel(pod.uuid.as_str(), container, &purpose).await?;
    let (archive, mut written) = mpsc::channel(4);
    let writing = tokio::task::spawn_blocking(move || tar_files::write(&resolved, &name, archive));
    let sent = tokio::select! {
        // The engine may refuse the archive before its end.
        ended = end_of(&mut receiver) => return ended,
        sent = send_archive(&mut sender, &mut written) => sent,
    };
    sent?;
    // An incomplete archive must not look finished.
    writing.await.map_err(|error| CommandError::Other(error.to_string()))?.map_err(CommandError::Other)?;
    sender.send(&Frame::EndOfInput).await?;
    end_of(&mut receiver).await
}

async fn send_archive(sender: &mut ChannelSender, written: &mut mpsc::Receiver<Bytes>) -> CommandResult<()> {
    while let Some(data) = written.recv().await {
        for piece in pieces(data) {
            sender.send(&Frame::Input(piece)).await?;
        }
    }
    Ok(())
}

async fn end_of(receiver: &mut ChannelReceiver) -> CommandResult {
    while let Some(frame) = receiver.next().await? {
        match frame {
            Frame::Exit(_) => return Ok(Exit::Ok),
            Frame::Failed(why) => return Err(CommandError::Other(why)),
            _ => {}
        }
    }
    Err(CommandError::Other("the API has ended the copy".to_owned()))
}

async fn from_pod(
    pod: &str,
    path: &str,
    target: &Path,
    args: &CopyArgs,
    context: &mut Context<'_>,
) -> CommandResult {
    split(path)?;
    let pod = find_pod::running_pod(context, pod).await?;
    let purpose = Purpose::CopyFrom { path: path.to_owned() };
    let container = args.container.as_deref();
    let (_sender, mut receiver) = context.client.open_channel(pod.uuid.as_str(), container, &purpose).await?;
    let (archive, received) = mpsc::channel(4);
    let target: PathBuf = target.to_owned();
    let reading = tokio::task::spawn_blocking(move || tar_files::read(received, &target));
    let result = receive_archive(&mut receiver, archive).await;
    let skipped = reading.await.map_err(|error| CommandError::Other(error.to_string()))?;
    // The reason for the early end of the archive says more.
    result?;
    for name in skipped.map_err(CommandError::Other)? {
        stderr::error(&format!("{name} was not copied: it is no file, directory or link"));
    }
    Ok(Exit::Ok)
}

async fn receive_archive(
    receiver: &mut ChannelReceiver,
    archive: mpsc::Sender<Result<Bytes, String>>,
) -> CommandResult<()> {
    while let Some(frame) = receiver.next().await? {
        let goes_on = match frame {
            // Otherwise the reader has failed and reports the reason.
            Frame::Output(data) => archive.send(Ok(data)).await.is_ok(),
            Frame::Exit(_) => false,
            Frame::Failed(why) => {
                let _ended = archive.send(Err(why.clone())).await;
                return Err(CommandError::Other(why));
            }
            _ => true,
        };
        if !goes_on {
            return Ok(());
        }
    }
    let why = "the API has ended the copy".to_owned();
    let _ended = archive.send(Err(why.clone())).await;
    Err(CommandError::Other(why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_place_is_in_a_pod_or_here() {
        let pod = |pod, path| CopySide::Pod { pod, path };
        assert_eq!(place("web-0:/etc"), pod("web-0", "/etc"));
        assert_eq!(place("web-0:"), pod("web-0", ""));
        for here in ["/a:b", "./a:b", "file", ":x"] {
            assert_eq!(place(here), CopySide::Here(Path::new(here)));
        }
    }

    #[test]
    fn targets_are_split_into_directory_and_name() {
        let table = [
            ("/etc/app.conf", ("/etc", Some("app.conf"))),
            ("/etc/", ("/etc", None)),
            ("/", ("/", None)),
            ("/x", ("/", Some("x"))),
            ("/a/..", ("/a/..", None)),
        ];
        for (path, expected) in table {
            assert_eq!(split(path).unwrap(), expected, "{path}");
        }
        assert!(split("etc").is_err());
    }
}
