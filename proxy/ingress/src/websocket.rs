//! Tracks WebSocket frames to the client, so that a cut connection ends with a close frame.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Status 1001: going away.
const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xe9];
const CLOSE: u8 = 8;

#[derive(Debug, Default)]
struct SentFrames {
    head: Vec<u8>,
    missing: u64,
    has_closed: bool,
}

impl SentFrames {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let taken = self.missing.min(bytes.len() as u64);
                self.missing -= taken;
                bytes = &bytes[taken as usize..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            if let Some(length) = self.payload_length() {
                self.has_closed |= self.head[0] & 0x0f == CLOSE;
                self.missing = length;
                self.head.clear();
            }
        }
    }

    fn payload_length(&self) -> Option<u64> {
        let second = *self.head.get(1)?;
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        if self.head.len() < 2 + extended + mask {
            return None;
        }
        let number = self.head[2..2 + extended].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Some(if extended == 0 { u64::from(second & 0x7f) } else { number })
    }

    fn can_close(&self) -> bool {
        !self.has_closed && self.missing == 0 && self.head.is_empty()
    }
}

/// Ends with a close frame unless the pod has sent one.
pub(super) struct WebSocketClient<S> {
    stream: S,
    /// `None` for other protocols.
    frames: Option<SentFrames>,
    goodbye: &'static [u8],
    is_ending: bool,
}

impl<S> WebSocketClient<S> {
    pub(super) fn new(stream: S, is_websocket: bool) -> Self {
        Self { stream, frames: is_websocket.then(SentFrames::default), goodbye: &[], is_ending: false }
    }

    fn note(&mut self, bytes: &[u8]) {
        if let Some(frames) = &mut self.frames {
            frames.feed(bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WebSocketClient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WebSocketClient<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.note(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_ending, true)
            && this.frames.as_ref().is_some_and(SentFrames::can_close)
        {
            this.goodbye = &GOING_AWAY;
        }
        while !this.goodbye.is_empty() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(cx, this.goodbye))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            this.goodbye = &this.goodbye[written..];
        }
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_frame_may_follow_between_two_frames_unless_there_was_one() {
        let text = |length: usize| match length {
            0..126 => [vec![0x81, length as u8], vec![b'x'; length]].concat(),
            126..65536 => [vec![0x81, 126, (length >> 8) as u8, length as u8], vec![b'x'; length]].concat(),
            _ => [vec![0x82, 127], (length as u64).to_be_bytes().to_vec(), vec![b'x'; length]].concat(),
        };
        let masked = [vec![0x81, 0x82, 1, 2, 3, 4], b"ab".to_vec()].concat();
        let all = [text(0), text(5), text(125), text(126), text(70_000), masked].concat();
        for size in [1, 2, 3, 7, 1000, all.len()] {
            let mut frames = SentFrames::default();
            assert!(frames.can_close(), "nothing was sent");
            all.chunks(size).for_each(|piece| frames.feed(piece));
            assert!(frames.can_close(), "{size}");
            frames.feed(&[0x81]);
            assert!(!frames.can_close());
            frames.feed(&[2, b'a']);
            assert!(!frames.can_close());
            frames.feed(b"b");
            assert!(frames.can_close());
            frames.feed(&GOING_AWAY);
            assert!(!frames.can_close());
        }
    }
}
