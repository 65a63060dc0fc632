//! Takes lines out of long heads and trailers before the parser, and puts them back behind it.
//!
//! The parser (hyper) allows 100 lines; a higher limit fills arrays of that size for each head. Lines about
//! framing or the connection stay.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Buf, BytesMut};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::io::ReadBuf;

use crate::scanner::{Boundary, BoundaryKind, MessageHead, MessageScanner, Part, field};

const PARSED: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

type HeaderLine = (HeaderName, HeaderValue);

#[derive(Debug, Default)]
pub(crate) struct Surplus {
    /// The last message that has begun behind the parser of requests, or before that of answers.
    message: AtomicU64,
    fields: Mutex<VecDeque<(Part, Vec<HeaderLine>)>>,
    /// Spares most messages the lock.
    has_fields: AtomicBool,
}

impl Surplus {
    pub(crate) fn begin(&self) -> u64 {
        self.message.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn message(&self) -> u64 {
        self.message.load(Ordering::Relaxed)
    }

    fn put(&self, part: Part, fields: Vec<HeaderLine>) {
        self.fields.lock().push_back((part, fields));
        self.has_fields.store(true, Ordering::Relaxed);
    }

    pub(crate) fn complete_head(&self, message: u64, headers: &mut HeaderMap) {
        self.complete(Part { message, is_trailers: false }, headers);
    }

    pub(crate) fn complete_trailers(&self, message: u64, trailers: &mut HeaderMap) {
        self.complete(Part { message, is_trailers: true }, trailers);
    }

    fn complete(&self, part: Part, headers: &mut HeaderMap) {
        if !self.has_fields.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.fields.lock();
        // The trailers of earlier messages may be unread.
        while waiting.front().is_some_and(|(of, _)| *of <= part)
            && let Some((of, fields)) = waiting.pop_front()
        {
            for (name, value) in fields.into_iter().filter(|_| of == part) {
                headers.append(name, value);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Thinner {
    surplus: Arc<Surplus>,
    held: Option<Vec<u8>>,
    passed: BytesMut,
}

impl Thinner {
    pub(crate) fn new(surplus: Arc<Surplus>) -> Self {
        Self { surplus, held: None, passed: BytesMut::new() }
    }

    #[inline]
    pub(crate) fn serve(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.passed.is_empty() {
            return false;
        }
        let length = self.passed.len().min(buffer.remaining());
        buffer.put_slice(&self.passed[..length]);
        self.passed.advance(length);
        true
    }

    /// Bytes from index `refused` on make the parser refuse the message. Returns false if there is nothing
    /// for it yet.
    pub(crate) fn thin<H: MessageHead>(
        &mut self,
        scanner: &mut MessageScanner<H>,
        buffer: &mut ReadBuf<'_>,
        before: usize,
        refused: Option<usize>,
    ) -> bool {
        let boundaries = scanner.take_boundaries();
        let bytes = &buffer.filled()[before..];
        if bytes.is_empty() || (boundaries.is_empty() && self.held.is_none()) {
            return true;
        }
        let (good, bad) = bytes.split_at(refused.unwrap_or(bytes.len()));
        self.pass(good, boundaries);
        if refused.is_some() {
            // The parser would refuse too many lines for another reason.
            self.held = None;
            self.passed.extend_from_slice(bad);
        }
        buffer.set_filled(before);
        self.serve(buffer)
    }

    fn pass(&mut self, bytes: &[u8], boundaries: Vec<Boundary>) {
        let mut from = 0;
        for Boundary { at, kind } in boundaries {
            self.add(&bytes[from..at]);
            from = at;
            match kind {
                BoundaryKind::MayBeLong => self.held = Some(Vec::new()),
                BoundaryKind::BeyondLimits => self.release(|_| None),
                BoundaryKind::EndOfInterim => self.release(|held| Some(split(held)?.0)),
                BoundaryKind::EndOf(part) => {
                    let surplus = self.surplus.clone();
                    self.release(|held| {
                        let (parsed, fields) = split(held)?;
                        surplus.put(part, fields);
                        Some(parsed)
                    });
                }
            }
        }
        self.add(&bytes[from..]);
    }

    fn add(&mut self, bytes: &[u8]) {
        match &mut self.held {
            Some(held) => held.extend_from_slice(bytes),
            None => self.passed.extend_from_slice(bytes),
        }
    }

    fn release(&mut self, thinned: impl FnOnce(&[u8]) -> Option<Vec<u8>>) {
        if let Some(held) = self.held.take() {
            let thinned = thinned(&held);
            self.passed.extend_from_slice(thinned.as_ref().unwrap_or(&held));
        }
    }
}

/// Splits into lines for the parser and others.
fn split(rest: &[u8]) -> Option<(Vec<u8>, Vec<HeaderLine>)> {
    let (mut parsed, mut others) = (Vec::new(), Vec::new());
    for line in rest.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\r\n")?;
        if content.is_empty() {
            parsed.extend_from_slice(line);
            continue;
        }
        let (name, value) = field(content).ok()?;
        let name = HeaderName::from_bytes(name).ok()?;
        if PARSED.contains(&name) {
            parsed.extend_from_slice(line);
        } else {
            others.push((name, HeaderValue::from_bytes(value).ok()?));
        }
    }
    Some((parsed, others))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client::framing;

    fn thinned(bytes: &[u8], cuts: &[usize]) -> (String, Vec<(u64, bool, usize)>, HeaderMap) {
        let surplus = Arc::<Surplus>::default();
        let (mut scanner, mut thinner) = (framing::Scanner::default(), Thinner::new(surplus.clone()));
        let (mut passed, mut from) = (Vec::new(), 0);
        for to in cuts.iter().copied().chain([bytes.len()]) {
            let mut piece = bytes[from..to].to_vec();
            let refused = scanner.feed(&piece).err().map(|(at, _)| at);
            let mut buffer = ReadBuf::new(&mut piece);
            buffer.advance(to - from);
            let has_bytes = thinner.thin(&mut scanner, &mut buffer, 0, refused);
            assert!(has_bytes || buffer.filled().is_empty());
            passed.extend_from_slice(buffer.filled());
            let mut small = [0; 7];
            let mut buffer = ReadBuf::new(&mut small);
            while thinner.serve(&mut buffer) {
                passed.extend_from_slice(buffer.filled());
                buffer.clear();
            }
            if refused.is_some() {
                break;
            }
            from = to;
        }
        let parts = surplus.fields.lock().iter().map(|(part, fields)| (*part, fields.len())).collect();
        let parts: Vec<(Part, usize)> = parts;
        let mut headers = HeaderMap::new();
        for (part, _) in &parts {
            surplus.complete(*part, &mut headers);
        }
        let parts =
            parts.into_iter().map(|(part, fields)| (part.message, part.is_trailers, fields)).collect();
        (String::from_utf8(passed).unwrap(), parts, headers)
    }

    const SHORT: &str = "GET /s HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn only_long_heads_and_trailers_lose_lines() {
        let lines = |count: usize| "X: y\r\n".repeat(count);
        let head = |rest: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{rest}\r\n");
        let chunked = |head: &str, trailers: &str| {
            let head = format!("Transfer-Encoding: chunked\r\n{head}");
            format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n1\r\nz\r\n0\r\n{trailers}\r\n")
        };
        let framed = "connection: close\r\nContent-Length: 2\r\n";
        for (text, passed, parts) in [
            (head(&lines(62)), None, vec![]),
            (head(&lines(63)), None, vec![(1, false, 0)]),
            (head(&lines(64)), Some(head(&lines(63))), vec![(1, false, 1)]),
            (head(&lines(999)), Some(head(&lines(63))), vec![(1, false, 936)]),
            (head(&lines(1000)), None, vec![]),
            (head(&format!("{}X: {}\r\n", lines(90), "y".repeat(65_000))), None, vec![]),
            (
                format!("{SHORT}{}ab{SHORT}", head(&format!("{}{framed}{}", lines(70), lines(3)))),
                Some(format!("{SHORT}{}ab{SHORT}", head(&format!("{}{framed}", lines(63))))),
                vec![(2, false, 10)],
            ),
            (
                format!("{}{}{SHORT}", chunked("", &lines(65)), chunked(&lines(64), &lines(1000))),
                Some(format!("{}{}{SHORT}", chunked("", &lines(64)), chunked(&lines(62), &lines(64)))),
                vec![(1, true, 1), (2, false, 2), (2, true, 936)],
            ),
            (chunked("", &lines(1001)), None, vec![]),
            // Withheld lines of a refused or unfinished head never pass.
            (
                head(&format!("{}X\r\n", lines(70))),
                Some(head(&lines(63)).replace("\r\n\r\n", "\r\n\n\r\n")),
                vec![],
            ),
            (
                format!("{SHORT}POST / HTTP/1.1\r\n{}", lines(70)),
                Some(format!("{SHORT}POST / HTTP/1.1\r\n{}", lines(64))),
                vec![],
            ),
        ] {
            let (seen, seen_parts, _) = thinned(text.as_bytes(), &[]);
            assert_eq!(seen, passed.unwrap_or_else(|| text.clone()), "{text:.90}");
            assert_eq!(seen_parts, parts, "{text:.90}");
        }
    }

    proptest! {
        #[test]
        fn all_lines_arrive_on_one_of_the_two_ways(
            fields in proptest::collection::vec("(x-[a-c]|TE|connection): ?[a-z0-9]{0,3}", 0..150),
            cuts in proptest::collection::vec(0_usize..2000, 0..8),
        ) {
            let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{SHORT}");
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.sort_unstable();
            let whole = thinned(text.as_bytes(), &[]);
            prop_assert_eq!(&thinned(text.as_bytes(), &cuts), &whole);

            let (passed, _, beside) = whole;
            let head = passed.strip_suffix(SHORT).unwrap();
            let parse = |lines: &mut dyn Iterator<Item = &str>| {
                let mut headers = HeaderMap::new();
                for line in lines.filter(|line| !line.is_empty()) {
                    let (name, value) = field(line.as_bytes()).unwrap();
                    let name = HeaderName::from_bytes(name).unwrap();
                    headers.append(name, HeaderValue::from_bytes(value).unwrap());
                }
                headers
            };
            let mut headers = parse(&mut head.lines().skip(2));
            for (name, value) in &beside {
                headers.append(name, value.clone());
            }
            let sent = parse(&mut fields.iter().map(String::as_str));
            prop_assert_eq!(headers, sent);
        }
    }
}
