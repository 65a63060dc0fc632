//! Lines that carry a socket from one process to another.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

const MAX_LINE_BYTES: usize = 4096;

pub(super) async fn send(stream: &UnixStream, line: &str, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(fd) = &socket {
                control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
            }
            let line = [IoSlice::new(line.as_bytes())];
            Ok(sendmsg(stream, &line, &mut control, SendFlags::NOSIGNAL)?)
        })
        .await?;
    if sent == line.len() { Ok(()) } else { Err(io::Error::other("a line was sent in part")) }
}

/// The kernel does not merge data sent with a socket with later data. So this reads exactly one line if only
/// the last line has no socket.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut line = vec![0; MAX_LINE_BYTES];
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
