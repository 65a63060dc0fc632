//! Times of the lines of a process pod. The pod writes its log itself, because it may outlive its worker. The
//! worker notes the log's length once a second, and interpolates.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use daemon::state_file::StateFile;

use super::folder::{Folder, private_file};
use crate::lines::wall_clock;

pub(super) const NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// With more, every second one is dropped.
const MAX_NOTES: usize = 4096;

/// Lengths of the log, each with its time in nanoseconds since the Unix epoch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct LogTimes(Vec<(u64, u64)>);

impl LogTimes {
    pub(super) fn read(notes: &Path) -> Self {
        let text = std::fs::read_to_string(notes).unwrap_or_default();
        let note = |line: &str| {
            let (length, time) = line.split_once(' ')?;
            Some((length.parse().ok()?, time.parse().ok()?))
        };
        let mut times = Self::default();
        text.lines().filter_map(note).for_each(|(length, time)| times.add(length, time));
        times
    }

    /// Ignores the note if the log was truncated, or the clock set back.
    pub(super) fn add(&mut self, length: u64, time: u64) {
        if self.0.last().is_none_or(|last| length > last.0 && time >= last.1) {
            self.0.push((length, time));
        }
    }

    /// Returns the time at which the log had this length.
    pub(super) fn at(&self, offset: u64) -> u64 {
        let next = self.0.partition_point(|(length, _)| *length < offset);
        let before = next.checked_sub(1).and_then(|index| self.0.get(index));
        match (before, self.0.get(next)) {
            // At most a second before the note: the log may have been quiet for long.
            (before, Some(&(length, time))) => {
                let earliest = time.saturating_sub(NOTE_INTERVAL.as_nanos() as u64);
                let (from, since) =
                    before.map_or((0, earliest), |(from, since)| (*from, *since.max(&earliest)));
                let part = (offset - from) as f64 / (length - from).max(1) as f64;
                since + ((time - since) as f64 * part) as u64
            }
            (Some((_, time)), None) => *time,
            (None, None) => 0,
        }
    }

    /// For a log without its first `offset` bytes.
    pub(super) fn moved(&self, offset: u64) -> Self {
        let rest = self.0.iter().filter(|(length, _)| *length > offset);
        Self(rest.map(|(length, time)| (length - offset, *time)).collect())
    }

    pub(super) fn to_text(&self) -> String {
        self.0.iter().map(|(length, time)| format!("{length} {time}\n")).collect()
    }

    fn thinned(&self) -> Self {
        Self(self.0.iter().skip(1).step_by(2).copied().collect())
    }
}

/// `noted` is the length at the last note. Returns the present length.
pub(super) fn note(folder: &Folder, noted: u64) -> io::Result<u64> {
    let metadata = std::fs::metadata(folder.log())?;
    let length = metadata.len();
    if length <= noted {
        return Ok(length);
    }
    let written = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = written.map_or_else(wall_clock, |time| time.as_nanos() as u64);
    let path = folder.log_times();
    private_file().append(true).open(&path)?.write_all(format!("{length} {time}\n").as_bytes())?;
    // A note has about 30 bytes.
    if std::fs::metadata(&path)?.len() > MAX_NOTES as u64 * 32 {
        let kept = LogTimes::read(&path).thinned();
        StateFile::new(path).private().until_reboot().write(kept.to_text().as_bytes())?;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_time_of_a_line_is_between_two_notes() {
        let mut times = LogTimes::default();
        for (length, seconds) in [(100, 10), (200, 11), (300, 60)] {
            times.add(length, seconds * SECOND);
        }
        for (offset, tenths) in [
            (50, 95),
            (100, 100),
            (150, 105),
            (200, 110),
            // The log was quiet from 11 on: later bytes were written in the second before the note.
            (201, 590),
            (250, 595),
            (300, 600),
            (999, 600),
        ] {
            let expected = tenths * SECOND / 10;
            assert!(times.at(offset).abs_diff(expected) < SECOND / 20, "{offset}: {}", times.at(offset));
        }
        assert_eq!(LogTimes::default().at(5), 0);
    }

    #[test]
    fn notes_that_do_not_fit_are_left_out() {
        let mut times = LogTimes::default();
        for (length, time) in [(100, 10), (50, 11), (200, 9), (200, 12)] {
            times.add(length, time);
        }
        assert_eq!(times.0, [(100, 10), (200, 12)]);
    }

    #[test]
    fn a_log_that_grows_is_noted_once_and_the_notes_are_bounded() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path(), "node/web").unwrap();
        folder.create().unwrap();
        assert!(note(&folder, 0).is_err(), "no log yet");
        std::fs::write(folder.log(), "a line\n").unwrap();
        let noted = note(&folder, 0).unwrap();
        assert_eq!((noted, note(&folder, noted).unwrap()), (7, 7));
        let times = LogTimes::read(&folder.log_times());
        assert!(times.0.len() == 1 && times.at(7) > SECOND, "{times:?}");
        let many: String = (8..12_000u64).map(|n| format!("{n} {:020}\n", n)).collect();
        std::fs::write(folder.log_times(), many).unwrap();
        std::fs::write(folder.log(), "x".repeat(20_000)).unwrap();
        note(&folder, 7).unwrap();
        assert!(LogTimes::read(&folder.log_times()).0.len() < 6100);
    }
}
