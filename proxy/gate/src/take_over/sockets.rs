//! Lines with which a socket can come, from one process to another.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::listening::HeldSocket;

/// The longest line, and far more than the name of a socket has.
const MAX_LINE: usize = 4096;

/// Sends a line, and a socket with it.
///
/// # Errors
/// If the connection has ended, or its buffer is full.
pub(super) async fn send(stream: &UnixStream, line: &str, socket: Option<&HeldSocket>) -> io::Result<()> {
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = socket.map(AsFd::as_fd);
            if let Some(fd) = &fds {
                control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
            }
            let line = [IoSlice::new(line.as_bytes())];
            Ok(sendmsg(stream, &line, &mut control, SendFlags::NOSIGNAL)?)
        })
        .await?;
    if sent == line.len() { Ok(()) } else { Err(io::Error::other("a line was sent in part")) }
}

/// Receives a line, and the socket that came with it; `None` at the end of the connection.
///
/// What is sent with a socket is never received together with what is sent after it, so this reads exactly
/// one line as long as the line without a socket is the last one.
///
/// # Errors
/// If the connection fails.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut line = vec![0; MAX_LINE];
    let (length, socket) = stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let bytes = &mut [IoSliceMut::new(&mut line)];
            let received = recvmsg(stream, bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let socket = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
                _ => None,
            });
            Ok((received.bytes, socket))
        })
        .await?;
    line.truncate(length);
    Ok((length > 0).then_some((line, socket)))
}
