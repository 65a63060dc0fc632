//! Tracks the frames of an HTTP/2 client, to limit the time for a request's head. Pure.

/// Three bytes of length, the type, the flags, and four bytes for the stream.
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: [u8; HEAD_BYTES],
    has: usize,
    missing: usize,
    is_body: bool,
    is_in_headers: bool,
    is_ping: bool,
    has_spoken: bool,
}

impl Frames {
    pub(crate) fn after(preface: usize) -> Self {
        Self { missing: preface, ..Self::default() }
    }

    /// Pings show no activity.
    pub(crate) fn take_has_spoken(&mut self) -> bool {
        std::mem::take(&mut self.has_spoken)
    }

    /// Returns true if headers or another frame have ended in `bytes`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_ended = false;
        while !bytes.is_empty() {
            let taken = if self.missing > 0 {
                let taken = self.missing.min(bytes.len());
                self.missing -= taken;
                self.has_spoken |= !self.is_ping;
                taken
            } else {
                let taken = (HEAD_BYTES - self.has).min(bytes.len());
                self.head[self.has..self.has + taken].copy_from_slice(&bytes[..taken]);
                self.has += taken;
                if self.has == HEAD_BYTES {
                    self.begin_payload();
                }
                taken
            };
            bytes = &bytes[taken..];
            has_ended |= !self.is_in_head();
        }
        has_ended
    }

    fn begin_payload(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.missing = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.has = 0;
        self.is_body = kind == DATA;
        self.is_ping = kind == PING;
        self.has_spoken |= !self.is_ping;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_in_headers = flags & END_HEADERS == 0;
        }
    }

    pub(crate) fn is_in_head(&self) -> bool {
        self.has > 0 || self.is_in_headers || (self.missing > 0 && !self.is_body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0, 0, payload as u8, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + payload, b'x');
        frame
    }

    #[test]
    fn headers_have_ended_with_their_last_frame_and_bodies_may_take_long() {
        let mut frames = Frames::after(3);
        for (bytes, ended, is_in_head) in [
            (b"PR".to_vec(), false, true),
            (b"I".to_vec(), true, false),
            (frame(4, 0, 0), true, false),
            (frame(HEADERS, 0, 5), false, true),
            (frame(CONTINUATION, 0, 0), false, true),
            (frame(CONTINUATION, END_HEADERS, 2), true, false),
            ([frame(HEADERS, END_HEADERS, 5), vec![0]].concat(), true, true),
            (frame(DATA, 0, 200)[1..50].to_vec(), true, false),
            (vec![b'x'; 159], true, false),
            (vec![0], false, true),
        ] {
            assert_eq!((frames.feed(&bytes), frames.is_in_head()), (ended, is_in_head), "{bytes:?}");
        }
    }

    #[test]
    fn a_client_that_only_answers_pings_says_nothing() {
        let mut frames = Frames::after(3);
        for (bytes, expected) in [
            (b"PRI".to_vec(), true),
            (frame(PING, 1, 8), false),
            (frame(PING, 0, 8)[..10].to_vec(), false),
            (frame(PING, 0, 8)[10..].to_vec(), false),
            (frame(8, 0, 4), true),
            (Vec::new(), false),
            ([frame(PING, 1, 8), frame(DATA, 1, 0)].concat(), true),
        ] {
            frames.feed(&bytes);
            assert_eq!(frames.take_has_spoken(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn the_pieces_in_which_frames_come_do_not_matter() {
        let all =
            [frame(4, 0, 6), frame(HEADERS, 0, 9), frame(CONTINUATION, 4, 9), frame(DATA, 1, 30)].concat();
        for size in 1..all.len() {
            let mut frames = Frames::after(0);
            let ended: Vec<bool> = all.chunks(size).map(|piece| frames.feed(piece)).collect();
            assert!(ended.contains(&true) && !frames.is_in_head(), "{size}");
        }
    }
}
