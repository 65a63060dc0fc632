//! Server-sent events, as far as the API sends them: bytes in any pieces in, frames out.
//! See <https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>.

/// What stands between two blank lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// `data:` lines, joined by line feeds.
    pub(crate) data: String,
}

/// More than this without a blank line is no event of ours.
const MAX_PENDING: usize = 1 << 20;

/// Somebody sends a frame without an end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than 1 MiB")]
pub(crate) struct TooLong;

/// Reads frames from a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    pending: Vec<u8>,
    frame: Frame,
    has_data: bool,
}

impl SseParser {
    /// Takes the next piece, and gives the frames that are whole now. Comments (keep-alives) give none.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, TooLong> {
        self.pending.extend_from_slice(bytes);
        let mut frames = Vec::new();
        let mut begin = 0;
        while let Some(length) = self.pending[begin..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.pending[begin..begin + length]).into_owned();
            begin += length + 1;
            frames.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
        }
        self.pending.drain(..begin);
        if self.pending.len() + self.frame.data.len() > MAX_PENDING { Err(TooLong) } else { Ok(frames) }
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return std::mem::take(&mut self.has_data).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        // The id and the reason stand in the data too; a line that begins with a colon is a comment.
        if field == "data" {
            if self.has_data {
                self.frame.data.push('\n');
            }
            self.frame.data.push_str(value.strip_prefix(' ').unwrap_or(value));
            self.has_data = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const STREAM: &[u8] =
        b": keep-alive\n\nid: 1-0\nevent: Started\ndata: {\"a\":\"\xc3\xbc\"}\n\ndata: x\r\ndata:y\r\n\r\nid: 2\n\ndata: cut";

    fn data(frames: Vec<Frame>) -> Vec<String> {
        frames.into_iter().map(|frame| frame.data).collect()
    }

    #[test]
    fn frames_are_the_same_however_the_bytes_are_cut() {
        let expected = ["{\"a\":\"ü\"}", "x\ny"];
        for size in 1..STREAM.len() {
            let mut parser = SseParser::default();
            let found: Vec<Frame> =
                STREAM.chunks(size).flat_map(|piece| parser.push(piece).unwrap()).collect();
            assert_eq!(data(found), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_frame_without_end_is_refused() {
        let mut parser = SseParser::default();
        assert!(parser.push(b"data: ").is_ok());
        assert_eq!(parser.push(&vec![b'x'; MAX_PENDING + 1]), Err(TooLong));
        let mut parser = SseParser::default();
        let line = format!("data: {}\n", "x".repeat(1000));
        assert!((0..2000).any(|_| parser.push(line.as_bytes()).is_err()));
    }
}
