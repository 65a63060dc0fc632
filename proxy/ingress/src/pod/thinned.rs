//! A connection to a pod whose long answers are thinned out before the parser.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::long_heads::{Surplus, Thinner};
use crate::scanner::{Ambiguous, FramingState, MessageHead, MessageScanner};

#[derive(Debug, Default)]
pub(super) struct AnswerHead {
    is_interim: bool,
    is_chunked: bool,
}

impl MessageHead for AnswerHead {
    /// gRPC errors carry details in trailers.
    const MOST_BYTES: usize = 256 * 1024;

    fn first_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
        let status = status.ok_or(Ambiguous("a status line without a status"))?;
        self.is_interim = status[0] == b'1' && status != b"101";
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        const NAME: &[u8] = b"transfer-encoding";
        self.is_chunked |=
            line.get(NAME.len()) == Some(&b':') && line[..NAME.len()].eq_ignore_ascii_case(NAME);
        Ok(())
    }

    fn end(self) -> Result<FramingState, Ambiguous> {
        Ok(match self {
            Self { is_interim: true, .. } => FramingState::Head,
            Self { is_chunked: true, .. } => FramingState::ChunkSize,
            // Until the next request, all bytes are the body.
            _ => FramingState::Body(u64::MAX),
        })
    }
}

pub(super) struct Thinned<S> {
    stream: S,
    scanner: MessageScanner<AnswerHead>,
    thinner: Thinner,
    surplus: Arc<Surplus>,
    message: u64,
}

impl<S> Thinned<S> {
    pub(super) fn new(stream: S, surplus: Arc<Surplus>) -> Self {
        let thinner = Thinner::new(surplus.clone());
        Self { stream, scanner: MessageScanner::default(), thinner, surplus, message: 0 }
    }

    fn thin(&mut self, buffer: &mut ReadBuf<'_>, before: usize) -> bool {
        let message = self.surplus.message();
        if message != self.message {
            self.message = message;
            self.scanner.begin(message);
        }
        let bytes = &buffer.filled()[before..];
        if self.scanner.feed(bytes).is_err() {
            self.scanner.give_up(bytes);
        }
        self.thinner.thin(&mut self.scanner, buffer, before, None)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Thinned<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let mut has_bytes = this.thinner.serve(buffer);
        while !has_bytes {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            has_bytes = this.thin(buffer, before);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Thinned<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(answer: &str, cut: usize) -> (String, usize, usize) {
        let surplus = Arc::<Surplus>::default();
        let message = surplus.begin();
        let (first, second) = answer.as_bytes().split_at(cut);
        let mut stream = Thinned::new(first.chain(second), surplus.clone());
        let mut passed = String::new();
        stream.read_to_string(&mut passed).await.unwrap();
        let (mut headers, mut trailers) = (HeaderMap::new(), HeaderMap::new());
        surplus.complete_head(message, &mut headers);
        surplus.complete_trailers(message, &mut trailers);
        (passed, headers.len(), trailers.len())
    }

    #[tokio::test]
    async fn answers_lose_lines_of_their_heads_and_trailers_and_none_of_their_bodies() {
        let lines = |count: usize| "X: y\r\n".repeat(count);
        let answer = |interim: usize, head: usize, trailers: usize| {
            format!(
                "HTTP/1.1 103 Early Hints\r\n{}\r\nHTTP/1.1 200 OK\r\n{}Transfer-Encoding: chunked\r\n\r\n\
                 5\r\nhello\r\n4;x\r\n0\r\n\r\r\n0\r\n{}\r\n",
                lines(interim),
                lines(head),
                lines(trailers)
            )
        };
        let sent = answer(70, 80, 90);
        for cut in 0..sent.len() {
            assert_eq!(read(&sent, cut).await, (answer(64, 64, 64), 16, 26), "{cut}");
        }
        let unchanged = [
            format!("HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n{}", lines(100)),
            format!("HTTP/1.1 101 Switching Protocols\r\n\r\n{}", lines(100)),
            format!("HTTP/1.1 200 OK\n{}\n", lines(100).replace('\r', "")),
            format!("HTTP/1.1 200 OK\r\n{}: z\r\n{}\r\n", lines(70), lines(30)),
            format!("HTTP/1.1 200 OK\r\n{}X: {}\r\n\r\n", lines(70), "y".repeat(300_000)),
        ];
        for sent in &unchanged {
            assert_eq!(read(sent, 0).await, (sent.clone(), 0, 0), "{sent:.90}");
        }
        let sent = answer(0, 1000, 1001);
        assert_eq!(read(&sent, 0).await, (sent, 0, 0), "beyond the limits");
    }
}
