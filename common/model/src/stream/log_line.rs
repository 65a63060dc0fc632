//! Log lines, as workers send them to APIs, and their encoding.

use bytes::{BufMut, Bytes, BytesMut};

use crate::ids::{ContainerName, PodId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Nanoseconds since 1970 on its node's clock.
    pub time: u64,
    pub pod: PodId,
    /// Such as `web-0`.
    pub name: String,
    /// If the pod has several.
    pub container: Option<ContainerName>,
    /// Without its line feed.
    pub text: Bytes,
}

impl LogLine {
    /// Appends the fields, separated by tabs, and a line feed.
    pub fn encode(&self, to: &mut BytesMut) {
        let container = self.container.as_ref().map_or("", ContainerName::as_str);
        to.put_slice(format!("{}\t{}\t{}\t{container}\t", self.time, self.pod, self.name).as_bytes());
        to.put_slice(&self.text);
        to.put_u8(b'\n');
    }

    /// `line` has no line feed. Returns `None` if it is malformed.
    pub fn decode(line: &Bytes) -> Option<Self> {
        let mut fields = line.splitn(5, |byte| *byte == b'\t');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let (time, pod, name, container) = (text()?.parse().ok()?, text()?, text()?, text()?);
        let container = match container {
            "" => None,
            name => Some(ContainerName::new(name).ok()?),
        };
        let text = line.slice_ref(fields.next()?);
        Some(Self { time, pod: PodId::new(pod).ok()?, name: name.to_owned(), container, text })
    }
}

/// Splits a stream of bytes into lines. An incomplete line is kept, however long it is.
#[derive(Debug, Default)]
pub struct LineSplitter {
    rest: BytesMut,
}

impl LineSplitter {
    /// Returns the lines that are complete, without their line feeds.
    pub fn add(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        self.rest.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let mut line = self.rest.split_to(end + 1);
            line.truncate(end);
            lines.push(line.freeze());
        }
        lines
    }

    /// Returns the incomplete line.
    pub fn finish(self) -> Option<Bytes> {
        (!self.rest.is_empty()).then(|| self.rest.freeze())
    }

    /// Number of bytes of the incomplete line.
    pub fn waiting(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn line(text: &'static [u8], container: Option<&str>) -> LogLine {
        LogLine {
            time: 1_700_000_000_123_456_789,
            pod: PodId::new("0b1c-22").unwrap(),
            name: "web-0".to_owned(),
            container: container.map(|name| ContainerName::new(name).unwrap()),
            text: Bytes::from_static(text),
        }
    }

    #[test]
    fn lines_are_read_back_however_the_bytes_are_cut() {
        let lines =
            [line(b"plain", None), line(b"\ttabs\tand \xff\xfe bytes", Some("cache")), line(b"", None)];
        let mut sent = BytesMut::new();
        lines.iter().for_each(|line| line.encode(&mut sent));
        for size in [1, 3, 1000] {
            let mut splitter = LineSplitter::default();
            let read: Vec<LogLine> = sent
                .chunks(size)
                .flat_map(|piece| splitter.add(piece))
                .map(|line| LogLine::decode(&line).unwrap())
                .collect();
            assert_eq!(read, lines, "{size}");
            assert_eq!(splitter.finish(), None);
        }
    }

    #[test]
    fn what_is_no_line_is_not_read() {
        for bad in ["", "1\ta\tb", "x\tpod\tname\t\ttext", "1\t\tname\t\ttext", "1\tpod\tname\t/\ttext"] {
            assert_eq!(LogLine::decode(&Bytes::from(bad)), None, "{bad:?}");
        }
    }
}
