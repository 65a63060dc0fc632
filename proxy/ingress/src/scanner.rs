//! Follows the messages on an HTTP/1 connection before the parser. Pure.
//!
//! Finds where a head or trailers become long, for [`crate::long_heads`].

/// The parser's own limit is lower.
const LONGEST_LINE: usize = 128 * 1024;
const LONGEST_CHUNK_LINE: usize = 1024;

/// The parser allows 100 lines: the others are for lines that mean something to it.
const MOST_SHORT_LINES: usize = 64;
const MOST_LINES: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Ambiguous(pub &'static str);

const EARLY: Ambiguous = Ambiguous("bytes after a request to upgrade, before the answer");

pub(crate) trait MessageHead: Default {
    const MOST_BYTES: usize;

    fn first_line(&mut self, line: &[u8]) -> Result<(), Ambiguous>;

    fn field(&mut self, line: &[u8]) -> Result<(), Ambiguous>;

    /// `Head` after an interim answer.
    fn end(self) -> Result<FramingState, Ambiguous>;
}

#[derive(Debug, Default)]
pub(crate) struct MessageScanner<H> {
    state: FramingState,
    line: Vec<u8>,
    head: H,
    section: Section,
    heads: u64,
    boundaries: Vec<Boundary>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FramingState {
    #[default]
    Between,
    Head,
    Body(u64),
    ChunkSize,
    /// The missing bytes before its line end.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// The answer decides what the next bytes are.
    Upgrade,
}

#[derive(Debug, Default)]
struct Section {
    has_empty_line: bool,
    is_first_line_read: bool,
    fields: usize,
    length: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Boundary {
    pub(crate) at: usize,
    pub(crate) kind: BoundaryKind,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BoundaryKind {
    MayBeLong,
    EndOfInterim,
    EndOf(Part),
    BeyondLimits,
}

/// A part of a connection's n-th message, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) message: u64,
    pub(crate) is_trailers: bool,
}

impl<H: MessageHead> MessageScanner<H> {
    pub(crate) fn state(&self) -> FramingState {
        self.state
    }

    pub(crate) fn upgrade_was_refused(&mut self) {
        self.state = FramingState::Between;
    }

    pub(crate) fn begin(&mut self, message: u64) {
        *self = Self { heads: message - 1, ..Self::default() };
    }

    pub(crate) fn give_up(&mut self, bytes: &[u8]) {
        self.state = FramingState::Body(u64::MAX);
        if self.section.fields >= MOST_SHORT_LINES {
            self.boundaries.push(Boundary { at: bytes.len(), kind: BoundaryKind::BeyondLimits });
        }
    }

    pub(crate) fn take_boundaries(&mut self) -> Vec<Boundary> {
        std::mem::take(&mut self.boundaries)
    }

    /// Returns the number of heads that ended in `bytes`.
    ///
    /// # Errors
    /// The index of the first byte to withhold from the parser: the bytes before never complete an invalid
    /// head.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<usize, (usize, Ambiguous)> {
        let mut at = 0;
        let mut heads = 0;
        while at < bytes.len() {
            at += match self.state {
                FramingState::Body(left) | FramingState::Chunk(left) => self.skip(left, bytes.len() - at),
                FramingState::Upgrade => {
                    return Err((at, EARLY));
                }
                state => {
                    let end = memchr::memchr(b'\n', &bytes[at..]);
                    let Some(length) = end.map(|end| end + 1) else {
                        self.keep(&bytes[at..]).map_err(|why| (at, why))?;
                        break;
                    };
                    let last = at + length - 1;
                    self.section.length += self.line.len() + length;
                    let ended = self.ended_line(&bytes[at..=last]).map_err(|why| (last, why))?;
                    heads += usize::from(ended);
                    if self.state == FramingState::Upgrade && last + 1 < bytes.len() {
                        return Err((last, EARLY));
                    }
                    self.note_line(state, ended, last + 1);
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
            FramingState::Between | FramingState::Head if self.section.begins_with_empty(line) => {
                self.state = FramingState::Between;
            }
            FramingState::Between | FramingState::Head if !self.section.is_first_line_read => {
                self.state = FramingState::Head;
                self.section.is_first_line_read = true;
                self.head.first_line(line)?;
            }
            FramingState::Between | FramingState::Head if line.is_empty() => {
                self.state = std::mem::take(&mut self.head).end()?;
                return Ok(true);
            }
            FramingState::Between | FramingState::Head => {
                self.section.fields += 1;
                self.head.field(line)?;
            }
            FramingState::ChunkSize => {
                self.state = match chunk_size(line)? {
                    0 => FramingState::Trailers,
                    size => FramingState::Chunk(size),
                };
                self.section.length = 0;
            }
            FramingState::ChunkEnd if line.is_empty() => self.state = FramingState::ChunkSize,
            FramingState::ChunkEnd => return Err(Ambiguous("a chunk longer than its size")),
            FramingState::Trailers if line.is_empty() => self.state = FramingState::Between,
            FramingState::Trailers => {
                self.section.fields += 1;
                trailer(line)?;
            }
            FramingState::Body(_) | FramingState::Chunk(_) | FramingState::Upgrade => {}
        }
        Ok(false)
    }

    fn note_line(&mut self, was: FramingState, has_head_ended: bool, at: usize) {
        let have_trailers_ended = was == FramingState::Trailers && self.state == FramingState::Between;
        let Section { fields, length, .. } = self.section;
        let is_interim = has_head_ended && self.state == FramingState::Head;
        self.heads += u64::from(has_head_ended && !is_interim);
        let has_ended = has_head_ended || have_trailers_ended;
        if has_ended {
            self.section = Section::default();
        }
        let kind = match fields {
            ..MOST_SHORT_LINES => return,
            _ if fields > MOST_LINES || length > H::MOST_BYTES => BoundaryKind::BeyondLimits,
            _ if is_interim => BoundaryKind::EndOfInterim,
            _ if has_ended => {
                BoundaryKind::EndOf(Part { message: self.heads, is_trailers: have_trailers_ended })
            }
            MOST_SHORT_LINES => BoundaryKind::MayBeLong,
            _ => return,
        };
        self.boundaries.push(Boundary { at, kind });
    }
}

impl Section {
    /// RFC 9112 recommends to skip one empty line: some clients send it after a body.
    fn begins_with_empty(&mut self, line: &[u8]) -> bool {
        let is_before = !self.is_first_line_read && line.is_empty();
        is_before && !std::mem::replace(&mut self.has_empty_line, true)
    }
}

pub(crate) fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Ambiguous> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Ambiguous("a header over several lines"));
    }
    let colon = memchr::memchr(b':', line).ok_or(Ambiguous("a header without a colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !TOKEN.has_all(name) {
        return Err(Ambiguous("an invalid name of a header"));
    }
    if !VALUE.has_all(value) {
        return Err(Ambiguous("a control character in a header"));
    }
    Ok((name, value.trim_ascii()))
}

/// Another server might take some trailers for headers.
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

pub(crate) struct Bytes([bool; 256]);

pub(crate) const ALPHANUMERIC: &[(u8, u8)] = &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')];
pub(crate) static TOKEN: Bytes = Bytes::new(ALPHANUMERIC, b"!#$%&'*+-.^_`|~");
static VALUE: Bytes = Bytes::new(&[(b' ', b'~'), (0x80, 0xff)], b"\t");

impl Bytes {
    /// `ranges` include their ends.
    pub(crate) const fn new(ranges: &[(u8, u8)], others: &[u8]) -> Self {
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

    pub(crate) fn has_all(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| self.0[usize::from(*byte)])
    }
}
