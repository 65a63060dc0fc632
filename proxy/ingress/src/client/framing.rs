//! Checks that the requests on an HTTP/1 connection are unambiguous. Pure.
//!
//! A lenient parser accepts requests in which another server sees another number of requests, or another body
//! (request smuggling). This scanner runs before the parser and tracks message boundaries itself.

/// Maximum length of an incomplete line. The parser's own limit is lower.
const LONGEST_LINE: usize = 128 * 1024;
const LONGEST_CHUNK_LINE: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Ambiguous(pub &'static str);

const EARLY: Ambiguous = Ambiguous("bytes after a request to upgrade, before the answer");

#[derive(Debug)]
pub(crate) struct Scanner {
    state: FramingState,
    line: Vec<u8>,
    head: RequestHead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramingState {
    Between,
    Head,
    /// In a body, with the number of missing bytes.
    Body(u64),
    ChunkSize,
    /// In a chunk, with the number of missing bytes before its line end.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// After the head of an upgrade request: the meaning of the next bytes depends on the answer.
    Upgrade,
}

#[derive(Debug, Default)]
struct RequestHead {
    has_empty_line: bool,
    is_first_line_read: bool,
    is_http_10: bool,
    authority: Option<Vec<u8>>,
    has_host: bool,
    is_host_other_than_authority: bool,
    content_length: Option<u64>,
    is_chunked: bool,
    is_connection_upgrade: bool,
    has_upgrade: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { state: FramingState::Between, line: Vec::new(), head: RequestHead::default() }
    }
}

impl Scanner {
    pub(crate) fn state(&self) -> FramingState {
        self.state
    }

    pub(crate) fn upgrade_was_refused(&mut self) {
        self.state = FramingState::Between;
    }

    /// Processes the next bytes. Returns the number of request heads that ended in them.
    ///
    /// # Errors
    /// The index of the first byte to withhold from the parser, and the reason. The bytes before it never
    /// complete an invalid head.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<usize, (usize, Ambiguous)> {
        let mut at = 0;
        let mut heads = 0;
        while at < bytes.len() {
            at += match self.state {
                FramingState::Body(left) | FramingState::Chunk(left) => self.skip(left, bytes.len() - at),
                FramingState::Upgrade => {
                    return Err((at, EARLY));
                }
                _ => {
                    let end = find(b'\n', &bytes[at..]);
                    let Some(length) = end.map(|end| end + 1) else {
                        self.keep(&bytes[at..]).map_err(|why| (at, why))?;
                        break;
                    };
                    let last = at + length - 1;
                    let ended = self.ended_line(&bytes[at..=last]).map_err(|why| (last, why))?;
                    heads += usize::from(ended);
                    if self.state == FramingState::Upgrade && last + 1 < bytes.len() {
                        return Err((last, EARLY));
                    }
                    length
                }
            };
        }
        Ok(heads)
    }

    fn skip(&mut self, left: u64, here: usize) -> usize {
        let skipped = left.min(here as u64);
        let left = left - skipped;
        self.state = match self.state {
            FramingState::Body(_) if left == 0 => FramingState::Between,
            FramingState::Body(_) => FramingState::Body(left),
            _ if left == 0 => FramingState::ChunkEnd,
            _ => FramingState::Chunk(left),
        };
        skipped as usize
    }

    /// Keeps the beginning of a line. Refuses at once if it cannot become valid.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Ambiguous> {
        let longest = if self.state == FramingState::ChunkSize { LONGEST_CHUNK_LINE } else { LONGEST_LINE };
        if self.line.len() + bytes.len() > longest {
            return Err(Ambiguous("a line that is too long"));
        }
        if self.state == FramingState::Between {
            self.state = FramingState::Head;
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns true if the line ended a head.
    fn ended_line(&mut self, end: &[u8]) -> Result<bool, Ambiguous> {
        if self.line.is_empty() {
            return self.line(end);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(end);
        self.line(&line)
    }

    fn line(&mut self, line: &[u8]) -> Result<bool, Ambiguous> {
        let line = line.strip_suffix(b"\r\n").ok_or(Ambiguous("a line that ends without CR"))?;
        match self.state {
            FramingState::Between | FramingState::Head if self.head.begins_with_empty(line) => {
                self.state = FramingState::Between;
            }
            FramingState::Between | FramingState::Head if !self.head.is_first_line_read => {
                self.state = FramingState::Head;
                self.head.request_line(line)?;
            }
            FramingState::Between | FramingState::Head if line.is_empty() => {
                self.state = std::mem::take(&mut self.head).end()?;
                return Ok(true);
            }
            FramingState::Between | FramingState::Head => self.head.field(line)?,
            FramingState::ChunkSize => {
                self.state = match chunk_size(line)? {
                    0 => FramingState::Trailers,
                    size => FramingState::Chunk(size),
                };
            }
            FramingState::ChunkEnd if line.is_empty() => self.state = FramingState::ChunkSize,
            FramingState::ChunkEnd => return Err(Ambiguous("a chunk longer than its size")),
            FramingState::Trailers if line.is_empty() => self.state = FramingState::Between,
            FramingState::Trailers => trailer(line)?,
            FramingState::Body(_) | FramingState::Chunk(_) | FramingState::Upgrade => {}
        }
        Ok(false)
    }
}

impl RequestHead {
    /// Returns true for one empty line before the request line. RFC 9112 recommends to skip it: some clients
    /// send it after a body.
    fn begins_with_empty(&mut self, line: &[u8]) -> bool {
        let is_before = !self.is_first_line_read && line.is_empty();
        is_before && !std::mem::replace(&mut self.has_empty_line, true)
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        self.is_first_line_read = true;
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Ambiguous("a request line that is not method, target and version"));
        };
        if method.is_empty() || !TOKEN.has_all(method) {
            return Err(Ambiguous("an invalid method"));
        }
        if method == b"CONNECT" {
            return Err(Ambiguous("CONNECT: this is no forward proxy"));
        }
        self.target(target)?;
        self.is_http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Ambiguous("a version other than HTTP/1.0 and HTTP/1.1")),
        };
        Ok(())
    }

    fn target(&mut self, target: &[u8]) -> Result<(), Ambiguous> {
        if target.is_empty() || !TARGET.has_all(target) {
            return Err(Ambiguous("a target with invalid characters"));
        }
        if target[0] == b'/' || target == b"*" {
            return Ok(());
        }
        let lower = target.to_ascii_lowercase();
        let rest = lower.strip_prefix(b"http://").or_else(|| lower.strip_prefix(b"https://"));
        let rest = rest.ok_or(Ambiguous("a target that is neither a path nor a URL of HTTP"))?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        self.authority = Some(rest[..end].to_vec());
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let (name, value) = field(line)?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.has_upgrade |= upgrade_protocols(value).next().is_some();
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.is_connection_upgrade |= value
                    .split(|byte| *byte == b',')
                    .any(|o| o.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        if value.is_empty() || !HOST.has_all(value) {
            return Err(Ambiguous("an invalid Host"));
        }
        if std::mem::replace(&mut self.has_host, true) {
            return Err(Ambiguous("two Hosts"));
        }
        self.is_host_other_than_authority =
            self.authority.as_ref().is_some_and(|authority| !authority.eq_ignore_ascii_case(value));
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        if !(1..=18).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
            return Err(Ambiguous("an invalid Content-Length"));
        }
        let number = value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        match self.content_length.replace(number) {
            None => Ok(()),
            Some(_) => Err(Ambiguous("two Content-Lengths")),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Ambiguous("a Transfer-Encoding other than chunked"));
        }
        if std::mem::replace(&mut self.is_chunked, true) {
            return Err(Ambiguous("two Transfer-Encodings"));
        }
        Ok(())
    }

    fn end(self) -> Result<FramingState, Ambiguous> {
        if self.is_chunked && self.content_length.is_some() {
            return Err(Ambiguous("Content-Length and Transfer-Encoding"));
        }
        if self.is_chunked && self.is_http_10 {
            return Err(Ambiguous("Transfer-Encoding in HTTP/1.0"));
        }
        if !self.has_host && !self.is_http_10 {
            return Err(Ambiguous("no Host"));
        }
        if self.is_host_other_than_authority || (self.authority.is_some() && !self.has_host) {
            return Err(Ambiguous("a URL with another host than Host"));
        }
        let has_body = self.is_chunked || self.content_length.is_some_and(|length| length > 0);
        let is_upgrade = self.is_connection_upgrade && self.has_upgrade && !self.is_http_10;
        match self.content_length {
            _ if is_upgrade && has_body => Err(Ambiguous("a body in a request to upgrade")),
            _ if is_upgrade => Ok(FramingState::Upgrade),
            _ if self.is_chunked => Ok(FramingState::ChunkSize),
            Some(length) if length > 0 => Ok(FramingState::Body(length)),
            _ => Ok(FramingState::Between),
        }
    }
}

/// Returns the protocols of an `Upgrade` header, except `h2c`. Many clients offer it with each request;
/// servers ignore it, and after it this proxy would see no requests.
pub(crate) fn upgrade_protocols(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let protocols = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    protocols.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"h2c"))
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Ambiguous> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Ambiguous("a header over several lines"));
    }
    let colon = find(b':', line).ok_or(Ambiguous("a header without a colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !TOKEN.has_all(name) {
        return Err(Ambiguous("an invalid name of a header"));
    }
    if !VALUE.has_all(value) {
        return Err(Ambiguous("a control character in a header"));
    }
    Ok((name, value.trim_ascii()))
}

/// Refuses trailers that another server might take for headers.
fn trailer(line: &[u8]) -> Result<(), Ambiguous> {
    let (name, _) = field(line)?;
    let framing: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
    match framing.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        true => Err(Ambiguous("a trailer that belongs into the head")),
        false => Ok(()),
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, Ambiguous> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let extension = &line[digits..];
    let is_clean = extension.iter().all(|byte| (0x20..0x7f).contains(byte) || *byte == b'\t');
    if !(1..=15).contains(&digits) || !is_clean || !(extension.is_empty() || extension[0] == b';') {
        return Err(Ambiguous("an invalid size of a chunk"));
    }
    let digit = |byte: &u8| u64::from((*byte as char).to_digit(16).unwrap_or(0));
    Ok(line[..digits].iter().fold(0, |size, byte| size << 4 | digit(byte)))
}

/// A set of bytes, as a table for fast lookups.
struct Bytes([bool; 256]);

const ALPHANUMERIC: &[(u8, u8)] = &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')];
static TOKEN: Bytes = Bytes::new(ALPHANUMERIC, b"!#$%&'*+-.^_`|~");
static HOST: Bytes = Bytes::new(ALPHANUMERIC, b"-._~:[]%!$&'()*+;=");
static TARGET: Bytes = Bytes::new(&[(b'!', b'"'), (b'$', b'~')], b"");
static VALUE: Bytes = Bytes::new(&[(b' ', b'~'), (0x80, 0xff)], b"\t");

impl Bytes {
    /// `ranges` include their ends.
    const fn new(ranges: &[(u8, u8)], others: &[u8]) -> Self {
        let mut bytes = [false; 256];
        let mut at = 0;
        while at < ranges.len() {
            let (first, last) = ranges[at];
            let mut byte = first as usize;
            while byte <= last as usize {
                bytes[byte] = true;
                byte += 1;
            }
            at += 1;
        }
        let mut at = 0;
        while at < others.len() {
            bytes[others[at] as usize] = true;
            at += 1;
        }
        Self(bytes)
    }

    fn has_all(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| self.0[usize::from(*byte)])
    }
}

fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|other| *other == byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(bytes: &[u8]) -> Result<usize, &'static str> {
        Scanner::default().feed(bytes).map_err(|(_, Ambiguous(why))| why)
    }

    #[test]
    fn well_formed_requests_pass_and_are_counted() {
        for (text, heads) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("GET / HTTP/1.0\r\n\r\n", 1),
            ("GET http://A.b/x HTTP/1.1\r\nHost: a.B\r\n\r\n", 1),
            ("OPTIONS * HTTP/1.1\r\nHost: a:80\r\n\r\n", 1),
            ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 2),
            ("GET / HTTP/1.1\r\nHost:a\r\nX: \t yé \r\nY:\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 2),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\n\n\n\
                 GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                2,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n\
                 3;x=\"y\"\r\nabc\r\n0a\r\n0123456789\r\n\
              0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
                2,
            ),
        ] {
            assert_eq!(feed(text.as_bytes()), Ok(heads), "{text:?}");
        }
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let with = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        let chunked = |body: &str| format!("{}{body}", with("Transfer-Encoding: chunked"));
        for text in [
            "GET /\r\n\r\n".to_owned(),
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(),
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
            "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_owned(),
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            with("Host: a"),
            with("Content-Length: 1\r\nContent-Length: 1"),
            with("Content-Length: 1, 1"),
            with("Content-Length: +1"),
            with("Content-Length:"),
            with("Content-Length: 1\r\nTransfer-Encoding: chunked"),
            with("Transfer-Encoding: chunked\r\nContent-Length: 1"),
            with("Transfer-Encoding: gzip, chunked"),
            with("Transfer-Encoding: \x0bchunked"),
            with("Transfer-Encoding : chunked"),
            with("X: y\r\n z"),
            with("X: y\rz"),
            with("X: y\nz: 1"),
            with(": y"),
            with("nothing"),
            with("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1"),
            with("Connection: Upgrade, x\r\nUpgrade: websocket\r\nX: y") + "z",
            chunked("x\r\n"),
            chunked("-1\r\n"),
            chunked("1 \r\na\r\n"),
            chunked("1\na\r\n"),
            chunked("1\r\nab\r\n"),
            chunked("10000000000000000\r\n"),
            chunked("1;\ra\r\na\r\n"),
            chunked("0\r\nHost: b\r\n\r\n"),
        ] {
            assert!(feed(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn nothing_passes_after_a_request_to_upgrade_until_it_was_answered() {
        let head =
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let mut scanner = Scanner::default();
        assert_eq!(scanner.feed(head), Ok(1));
        assert_eq!(scanner.state(), FramingState::Upgrade);
        assert_eq!(scanner.feed(b"x").unwrap_err().0, 0);
        scanner.upgrade_was_refused();
        assert_eq!(scanner.feed(head), Ok(1));
    }

    proptest! {
        /// The result does not depend on how the bytes are split.
        #[test]
        fn pieces_do_not_change_the_verdict(
            fields in proptest::collection::vec(
                "(Content-Length: [0-3]|Transfer-Encoding: chunked|X: [a-z \r\n]{0,4}|Host: b)", 0..3),
            body in "([0-3]\r\n|[a-c\r\n]){0,8}",
            cut in proptest::collection::vec(0_usize..120, 0..6),
        ) {
            let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}");
            let whole = Scanner::default().feed(text.as_bytes()).map_err(|(at, _)| at);
            let mut cuts: Vec<_> = cut.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut scanner, mut from, mut heads) = (Scanner::default(), 0, 0);
            let mut pieces = Ok(0);
            for to in cuts {
                match scanner.feed(&text.as_bytes()[from..to]) {
                    Ok(more) => heads += more,
                    Err((at, _)) => {
                        pieces = Err(from + at);
                        break;
                    }
                }
                from = to;
            }
            prop_assert_eq!(pieces.map(|_| heads), whole);
        }
    }
}
