//! The log of a process pod: bounded in size, read from its tail, and followed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use bytes::Bytes;
use daemon::state_file::IfFound;
use futures_util::stream::{self, BoxStream, StreamExt};

use model::stream::log_line::LineSplitter;

use super::folder::{Folder, PodState, private_file};
use super::log_times::LogTimes;
use crate::lines::{MAX_LINE_BYTES, wall_clock};
use crate::{EngineLine, LineQuery, LineStream, RuntimeError};

/// Checked with each list, so a log can be longer in between.
const MAX_LOG_BYTES: u64 = 10 << 20;
const CHUNK_BYTES: usize = 64 << 10;
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Processes have the log open, so it is not renamed. Output between the two steps is lost.
pub(super) fn truncate(folder: &Folder) -> io::Result<()> {
    let Some(mut log) = File::open(folder.log()).if_found()? else { return Ok(()) };
    let length = log.metadata()?.len();
    if length <= MAX_LOG_BYTES {
        return Ok(());
    }
    log.seek(SeekFrom::Start(length - MAX_LOG_BYTES))?;
    let mut older = private_file().write(true).truncate(true).open(folder.older_log())?;
    io::copy(&mut log.take(MAX_LOG_BYTES), &mut older)?;
    keep_times(folder, length - MAX_LOG_BYTES)?;
    private_file().write(true).open(folder.log())?.set_len(0)
}

pub(super) fn read(
    folder: Folder,
    tail: usize,
    follow: bool,
) -> BoxStream<'static, Result<Bytes, RuntimeError>> {
    chunks(LogReader::new(folder, tail, follow)).map(|chunk| chunk.map(|chunk| chunk.bytes)).boxed()
}

pub(super) fn lines(folder: Folder, query: LineQuery) -> LineStream {
    let reader = LogReader::new(folder.clone(), query.tail.unwrap_or(usize::MAX), query.follow);
    let state = Some((chunks(reader), TimedLines { folder, after: query.after, ..TimedLines::default() }));
    stream::unfold(state, |state| async {
        let (mut chunks, mut timed) = state?;
        match chunks.next().await {
            Some(Ok(chunk)) => Some((Ok(timed.add(&chunk)), Some((chunks, timed)))),
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Ok(timed.finish()), None)),
        }
    })
    .boxed()
}

fn chunks(reader: LogReader) -> BoxStream<'static, Result<LogPiece, RuntimeError>> {
    let chunks = stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        loop {
            let is_complete = reader.is_complete();
            let step = tokio::task::spawn_blocking(move || {
                let chunk = reader.read_chunk();
                (reader, chunk)
            });
            let (returned, chunk) = step.await.ok()?;
            reader = returned;
            match chunk {
                Ok(Some(chunk)) => return Some((Ok(chunk), Some(reader))),
                // It had ended before this last read, so no output is missed.
                Ok(None) if is_complete => return None,
                Ok(None) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(error) => {
                    let detail = format!("could not read the log of {}: {error}", reader.folder.handle);
                    return Some((Err(RuntimeError::Failed(detail)), None));
                }
            }
        }
    });
    chunks.boxed()
}

struct LogPiece {
    bytes: Bytes,
    offset: u64,
    is_older: bool,
}

#[derive(Default)]
struct TimedLines {
    folder: Folder,
    after: u64,
    splitter: LineSplitter,
    /// Keeps the order if the clock is set back.
    last_time: u64,
}

impl TimedLines {
    fn add(&mut self, piece: &LogPiece) -> Vec<EngineLine> {
        let notes = if piece.is_older { self.folder.older_log_times() } else { self.folder.log_times() };
        let mut times = LogTimes::read(&notes);
        let end = piece.offset + piece.bytes.len() as u64;
        if !piece.is_older {
            times.add(end, wall_clock());
        }
        let mut at = piece.offset.saturating_sub(self.splitter.waiting() as u64);
        let lines = self.splitter.add(&piece.bytes).into_iter().map(|text| {
            at += text.len() as u64 + 1;
            self.last_time = times.at(at).max(self.last_time);
            EngineLine { time: self.last_time, text: text.slice(..text.len().min(MAX_LINE_BYTES)) }
        });
        let lines: Vec<EngineLine> = lines.collect();
        lines.into_iter().filter(|line| line.time > self.after).collect()
    }

    fn finish(&mut self) -> Vec<EngineLine> {
        let text = std::mem::take(&mut self.splitter).finish();
        let time = self.last_time;
        text.map(|text| EngineLine { time, text }).into_iter().filter(|line| line.time > self.after).collect()
    }
}

fn keep_times(folder: &Folder, offset: u64) -> io::Result<()> {
    let text = LogTimes::read(&folder.log_times()).moved(offset).to_text();
    private_file().write(true).truncate(true).open(folder.older_log_times())?.write_all(text.as_bytes())?;
    std::fs::remove_file(folder.log_times()).if_found().map(drop)
}

struct LogReader {
    folder: Folder,
    tail: usize,
    follow: bool,
    files: Vec<File>,
    /// Without `follow` later output is not read: a pod that writes faster than this reads would never end.
    end: u64,
    has_begun: bool,
}

impl LogReader {
    fn new(folder: Folder, tail: usize, follow: bool) -> Self {
        Self { folder, tail, follow, files: Vec::new(), end: 0, has_begun: false }
    }

    fn is_complete(&self) -> bool {
        let is_running = |record: super::folder::Record| match record.state {
            PodState::Running(process) => process.is_running(),
            PodState::Starting => true,
            PodState::Exited(_) => false,
        };
        !self.follow || !self.folder.load().is_some_and(is_running)
    }

    fn read_chunk(&mut self) -> io::Result<Option<LogPiece>> {
        if !self.has_begun {
            self.has_begun = true;
            self.open_files()?;
        }
        let (end, follow) = (self.end, self.follow);
        while let [others @ .., file] = self.files.as_mut_slice() {
            if file.stream_position()? > file.metadata()?.len() {
                file.rewind()?; // it was truncated
            }
            let offset = file.stream_position()?;
            let is_older = !others.is_empty();
            let limit = if is_older || follow { u64::MAX } else { end.saturating_sub(offset) };
            let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(limit).unwrap_or(CHUNK_BYTES))];
            let length = file.read(&mut buffer)?;
            if length > 0 {
                buffer.truncate(length);
                return Ok(Some(LogPiece { bytes: buffer.into(), offset, is_older }));
            }
            if !is_older {
                return Ok(None);
            }
            self.files.pop();
        }
        Ok(None)
    }

    fn open_files(&mut self) -> io::Result<()> {
        let Some(mut log) = File::open(self.folder.log()).if_found()? else { return Ok(()) };
        self.end = log.metadata()?.len();
        let found = seek_to_tail(&mut log, self.tail, self.end)?;
        self.files.push(log);
        if found < self.tail
            && let Some(mut older) = File::open(self.folder.older_log()).if_found()?
        {
            let end = older.metadata()?.len();
            seek_to_tail(&mut older, self.tail - found, end)?;
            self.files.push(older);
        }
        Ok(())
    }
}

fn seek_to_tail(file: &mut File, lines: usize, end: u64) -> io::Result<usize> {
    if lines == 0 {
        file.seek(SeekFrom::Start(end))?;
        return Ok(0);
    }
    let (mut begin, mut found) = (end, 0);
    while begin > 0 {
        let length = begin.min(CHUNK_BYTES as u64);
        begin -= length;
        file.seek(SeekFrom::Start(begin))?;
        let mut buffer = vec![0; length as usize];
        file.read_exact(&mut buffer)?;
        for (index, byte) in buffer.iter().enumerate().rev() {
            let at = begin + index as u64;
            // A newline at the very end closes the last line and begins none.
            if *byte == b'\n' && at + 1 != end {
                found += 1;
                if found >= lines {
                    file.seek(SeekFrom::Start(at + 1))?;
                    return Ok(lines);
                }
            }
        }
    }
    file.rewind()?;
    Ok(if end == 0 { 0 } else { (found + 1).min(lines) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use futures_util::TryStreamExt;

    fn tail(text: &str, lines: usize) -> (usize, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, text).unwrap();
        let mut file = File::open(path).unwrap();
        let found = seek_to_tail(&mut file, lines, text.len() as u64).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        (found, rest)
    }

    #[test]
    fn a_tail_consists_of_whole_lines() {
        let cases = [
            ("a\nb\nc\n", 2, (2, "b\nc\n")),
            ("a\nb\nc", 2, (2, "b\nc")),
            ("a\nb\n", 9, (2, "a\nb\n")),
            ("a\nb\n", 0, (0, "")),
            ("", 3, (0, "")),
            ("\n\n\n", 2, (2, "\n\n")),
        ];
        for (text, lines, (found, rest)) in cases {
            assert_eq!(tail(text, lines), (found, rest.to_owned()), "{text:?} {lines}");
        }
        let long = "0123456789\n".repeat(20_000);
        assert_eq!(tail(&long, 15_000), (15_000, long[55_000..].to_owned()));
    }

    #[tokio::test]
    async fn a_long_log_is_truncated_and_its_tail_is_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), "node/web").unwrap();
        folder.create().unwrap();
        std::fs::write(folder.log(), "old line\n".repeat(2_000_000)).unwrap();
        truncate(&folder).unwrap();
        assert_eq!(std::fs::metadata(folder.log()).unwrap().len(), 0);
        assert_eq!(std::fs::metadata(folder.older_log()).unwrap().len(), MAX_LOG_BYTES);
        std::fs::write(folder.log(), "new line\n").unwrap();
        let chunks: Vec<Bytes> = read(folder, 2, false).try_collect().await.unwrap();
        assert_eq!(chunks.concat(), b"old line\nnew line\n");
    }

    #[test]
    fn what_is_written_while_a_tail_is_read_is_not_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), "node/web").unwrap();
        folder.create().unwrap();
        for (follow, expected) in [(false, "two\nthree\n"), (true, "two\nthree\nfour\n")] {
            std::fs::write(folder.log(), "one\ntwo\nthree\n").unwrap();
            let mut reader = LogReader::new(folder.clone(), 2, follow);
            reader.open_files().unwrap();
            reader.has_begun = true;
            std::fs::write(folder.log(), "one\ntwo\nthree\nfour\n").unwrap();
            let mut read = Vec::new();
            while let Some(piece) = reader.read_chunk().unwrap() {
                read.extend_from_slice(&piece.bytes);
            }
            assert_eq!(String::from_utf8(read).unwrap(), expected);
        }
    }
}
