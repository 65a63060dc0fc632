//! The frames on a kept connection.
//!
//! A frame is its kind (one byte), its payload's length (two bytes, big-endian) and the payload.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::protocol::TunnelReply;

pub(super) const HEADER: usize = 3;
/// A frame with its header fits one TLS record.
pub(super) const MAX_PAYLOAD_BYTES: usize = 16 * 1024 - HEADER;

const BEGIN: u8 = b'b';
const ACCEPTED: u8 = b'+';
const DATA: u8 = b'd';
const END: u8 = b'e';
const REFUSED: u8 = b'r';

#[derive(Debug, PartialEq, Eq)]
pub(super) enum TunnelFrame {
    Begin {
        /// Otherwise the request follows at once.
        wants_answer: bool,
    },
    /// Also sent as a sign of life while the pod is slow.
    Accepted,
    Data(Bytes),
    End,
    Refused(TunnelReply),
}

impl TunnelFrame {
    pub(super) fn write(&self, to: &mut BytesMut) {
        match self {
            TunnelFrame::Begin { wants_answer } => put(to, BEGIN, &[u8::from(*wants_answer)]),
            TunnelFrame::Accepted => put(to, ACCEPTED, &[]),
            TunnelFrame::Data(bytes) => put_data(to, bytes),
            TunnelFrame::End => put(to, END, &[]),
            TunnelFrame::Refused(reply) => put(to, REFUSED, &[reply.byte()]),
        }
    }

    pub(super) fn take(from: &mut BytesMut) -> io::Result<Option<Self>> {
        let Some((&[kind, high, low], rest)) = from.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > MAX_PAYLOAD_BYTES {
            return Err(io::Error::other("a frame of the tunnel is too long"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        from.advance(HEADER);
        let payload = from.split_to(length).freeze();
        let frame = match (kind, &payload[..]) {
            (DATA, _) => Some(TunnelFrame::Data(payload)),
            (BEGIN, [wants_answer @ (0 | 1)]) => {
                Some(TunnelFrame::Begin { wants_answer: *wants_answer == 1 })
            }
            (ACCEPTED, []) => Some(TunnelFrame::Accepted),
            (END, []) => Some(TunnelFrame::End),
            (REFUSED, [reply]) => TunnelReply::of_byte(*reply).map(TunnelFrame::Refused),
            _ => None,
        };
        frame.map(Some).ok_or_else(|| io::Error::other("a frame of the tunnel is of no known kind"))
    }
}

#[derive(Default)]
pub(super) struct Arrived(BytesMut);

impl Arrived {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps partial frames between polls.
    pub(super) fn poll_frame<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<TunnelFrame>>> {
        loop {
            if let Some(frame) = TunnelFrame::take(&mut self.0)? {
                return Poll::Ready(Ok(Some(frame)));
            }
            self.0.reserve(MAX_PAYLOAD_BYTES);
            if ready!(poll_read_buf(Pin::new(&mut *from), cx, &mut self.0))? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
    }
}

pub(super) fn data_header(length: usize) -> [u8; HEADER] {
    header(DATA, length)
}

/// Appends one frame. Returns the number of bytes taken.
pub(super) fn put_some_data(to: &mut BytesMut, bytes: &[u8]) -> usize {
    let bytes = &bytes[..bytes.len().min(MAX_PAYLOAD_BYTES)];
    put_data(to, bytes);
    bytes.len()
}

fn put_data(to: &mut BytesMut, bytes: &[u8]) {
    put(to, DATA, bytes);
}

fn put(to: &mut BytesMut, kind: u8, payload: &[u8]) {
    to.put_slice(&header(kind, payload.len()));
    to.put_slice(payload);
}

fn header(kind: u8, length: usize) -> [u8; HEADER] {
    debug_assert!(length <= MAX_PAYLOAD_BYTES);
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    [kind, high, low]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> Vec<TunnelFrame> {
        vec![
            TunnelFrame::Begin { wants_answer: true },
            TunnelFrame::Begin { wants_answer: false },
            TunnelFrame::Accepted,
            TunnelFrame::Data(Bytes::from(vec![b'x'; MAX_PAYLOAD_BYTES])),
            TunnelFrame::Data(Bytes::new()),
            TunnelFrame::End,
            TunnelFrame::Refused(TunnelReply::Closed),
            TunnelFrame::Refused(TunnelReply::Unknown),
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written_in_whatever_pieces_they_arrive() {
        let mut written = BytesMut::new();
        frames().iter().for_each(|frame| frame.write(&mut written));
        for piece in [1, 2, 7, 1000, written.len()] {
            let (mut arrived, mut read) = (BytesMut::new(), Vec::new());
            for bytes in written.chunks(piece) {
                arrived.extend_from_slice(bytes);
                while let Some(frame) = TunnelFrame::take(&mut arrived).unwrap() {
                    read.push(frame);
                }
            }
            assert_eq!(read, frames());
            assert!(arrived.is_empty());
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        for bytes in [&b"x\0\0"[..], b"b\0\0", b"b\0\x01\x02", b"e\0\x01e", b"r\0\x01?", b"d\xff\xff"] {
            assert!(TunnelFrame::take(&mut bytes.into()).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_read_past_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = TunnelFrame::take(&mut bytes) {}
        }
    }
}
