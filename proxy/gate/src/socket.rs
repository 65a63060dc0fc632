//! A TCP connection that sends a single buffer by `send`: `writev`, which libraries use for everything, takes
//! 0.13 µs longer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const SILENT_FOR: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const ASKED: u32 = 6;

/// Keepalive ends connections to hosts that lost power or whose middlebox forgot them. Accepted connections
/// inherit it.
pub(crate) fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(SILENT_FOR).with_interval(ASKED_EVERY).with_retries(ASKED);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    keep_alive(&stream)?;
    Ok(stream)
}

/// Has `TCP_NODELAY`.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.get_mut().0);
        match pieces {
            [piece] => stream.poll_write(cx, piece),
            _ => stream.poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// For a server that may close before reading everything. Later writes are dropped without an error, because
/// the answer may have arrived before. If not, reading fails.
#[derive(Debug)]
pub struct HeardSocket {
    socket: Socket,
    is_closed: bool,
}

impl From<Socket> for HeardSocket {
    fn from(socket: Socket) -> Self {
        Self { socket, is_closed: false }
    }
}

impl HeardSocket {
    fn write(
        &mut self,
        length: usize,
        write: impl FnOnce(Pin<&mut Socket>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Ok(length));
        }
        let written = write(Pin::new(&mut self.socket));
        self.is_closed = matches!(written, Poll::Ready(Err(_)));
        if self.is_closed { Poll::Ready(Ok(length)) } else { written }
    }
}

impl AsyncRead for HeardSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for HeardSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().write(bytes.len(), |socket| socket.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        self.get_mut().write(length, |socket| socket.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::Ipv4Addr;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::listening::Listening;

    #[tokio::test]
    async fn both_ends_of_a_connection_notice_that_the_other_has_gone() {
        let listening = Listening::from(CancellationToken::new());
        let listener = listening.tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connected = connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        for end in [&connected, &accepted] {
            let socket = SockRef::from(end);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), SILENT_FOR);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), ASKED);
        }
    }
}
