//! Lines of a container's log with their times.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use model::stream::log_line::LineSplitter;

use crate::RuntimeError;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineQuery {
    /// `None` for all.
    pub tail: Option<usize>,
    pub follow: bool,
    /// In nanoseconds since the Unix epoch.
    pub after: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineLine {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    pub text: Bytes,
}

pub type LineStream = BoxStream<'static, Result<Vec<EngineLine>, RuntimeError>>;

/// Nanoseconds since the Unix epoch.
pub fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Longer lines are cut: each waits in memory until it is sent.
pub(crate) const MAX_LINE_BYTES: usize = 64 * 1024;

pub(crate) fn stamped_when_read(output: BoxStream<'static, Result<Bytes, RuntimeError>>) -> LineStream {
    let state = Some((output, LineSplitter::default()));
    let line = |text| EngineLine { time: wall_clock(), text };
    stream::unfold(state, move |state| async move {
        let (mut output, mut splitter) = state?;
        match output.next().await {
            Some(Ok(bytes)) => {
                let lines = splitter.add(&bytes).into_iter().map(line).collect();
                Some((Ok(lines), Some((output, splitter))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Ok(splitter.finish().map(line).into_iter().collect()), None)),
        }
    })
    .boxed()
}

/// An engine cuts a line beyond its buffer into several entries, each with its time; only the last has a line
/// feed.
#[derive(Debug, Default)]
pub(crate) struct StampedEntries {
    begun: Option<(u64, BytesMut)>,
    last_time: u64,
}

impl StampedEntries {
    pub(crate) fn add(&mut self, entry: &Bytes) -> Vec<EngineLine> {
        let mut lines = Vec::new();
        for piece in entry.split_inclusive(|byte| *byte == b'\n') {
            let (time, text) = match split_time(piece) {
                Some((time, text)) => (time, text),
                None => (self.last_time, piece),
            };
            self.last_time = time;
            let (is_whole, text) = match text.strip_suffix(b"\n") {
                Some(text) => (true, text.strip_suffix(b"\r").unwrap_or(text)),
                None => (false, text),
            };
            let (begun, line) = self.begun.get_or_insert_with(|| (time, BytesMut::new()));
            let room = MAX_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                let time = *begun;
                lines.extend(self.begun.take().map(|(_, text)| EngineLine { time, text: text.freeze() }));
            }
        }
        lines
    }

    pub(crate) fn finish(&mut self) -> Option<EngineLine> {
        self.begun.take().map(|(time, text)| EngineLine { time, text: text.freeze() })
    }
}

fn split_time(entry: &[u8]) -> Option<(u64, &[u8])> {
    let end = entry.iter().take(40).position(|byte| *byte == b' ')?;
    let time = std::str::from_utf8(&entry[..end]).ok()?;
    if !time.as_bytes().first()?.is_ascii_digit() || !time.contains('T') {
        return None;
    }
    Some((nanoseconds(time)?, &entry[end + 1..]))
}

pub(crate) fn nanoseconds(time: &str) -> Option<u64> {
    u64::try_from(time.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: &str = "2024-05-01T10:00:00.000000001Z";
    const T2: &str = "2024-05-01T10:00:00.000000002Z";
    const NANOS: u64 = 1_714_557_600_000_000_000;

    fn lines(entries: &[&str]) -> Vec<(u64, String)> {
        let mut stamped = StampedEntries::default();
        let mut found: Vec<EngineLine> =
            entries.iter().flat_map(|entry| stamped.add(&Bytes::copy_from_slice(entry.as_bytes()))).collect();
        found.extend(stamped.finish());
        let shown = |line: EngineLine| (line.time, String::from_utf8_lossy(&line.text).into_owned());
        found.into_iter().map(shown).collect()
    }

    fn at(offset: u64, text: &str) -> (u64, String) {
        (NANOS + offset, text.to_owned())
    }

    #[test]
    fn entries_are_lines_with_times() {
        let entry = |time: &str, text: &str| format!("{time} {text}");
        let cases = [
            ("one each", vec![entry(T1, "a\n"), entry(T2, "b\n")], vec![at(1, "a"), at(2, "b")]),
            ("an empty line", vec![entry(T1, "\n")], vec![at(1, "")]),
            ("a terminal", vec![entry(T1, "a\r\n") + &entry(T2, "b\r\n")], vec![at(1, "a"), at(2, "b")]),
            ("a long line in parts", vec![entry(T1, "long "), entry(T2, "line\n")], vec![at(1, "long line")]),
            ("no end", vec![entry(T1, "begun")], vec![at(1, "begun")]),
            ("no time", vec![entry(T1, "a\n"), "1 b\n".to_owned()], vec![at(1, "a"), at(1, "1 b")]),
        ];
        for (name, entries, expected) in cases {
            let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
            assert_eq!(lines(&entries), expected, "{name}");
        }
    }

    #[test]
    fn a_line_has_a_bound() {
        let part = format!("{T1} {}", "x".repeat(MAX_LINE_BYTES - 1));
        let found = lines(&[&part, &format!("{T2} yz\n"), &format!("{T2} next\n")]);
        assert_eq!((found[0].1.len(), found[1].1.as_str()), (MAX_LINE_BYTES, "next"));
    }
}
