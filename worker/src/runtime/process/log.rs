//! The log of a process pod: bounded in size, read from its tail, and followed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};

use super::folder::{Folder, PodState, private_file};
use crate::runtime::RuntimeError;

/// A longer log is truncated, and this much of its end is kept in a second file. Checked with each list, so a
/// log can be longer until the next list.
const MAX_LOG_BYTES: u64 = 10 << 20;
const CHUNK_BYTES: usize = 64 << 10;
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Truncates a log that is too long. Processes have it open, so it is copied and emptied, not renamed; output
/// between the two is lost.
pub(super) fn truncate(folder: &Folder) -> io::Result<()> {
    let mut log = match File::open(folder.log()) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let length = log.metadata()?.len();
    if length <= MAX_LOG_BYTES {
        return Ok(());
    }
    log.seek(SeekFrom::Start(length - MAX_LOG_BYTES))?;
    let mut older = private_file().write(true).truncate(true).open(folder.older_log())?;
    io::copy(&mut log.take(MAX_LOG_BYTES), &mut older)?;
    private_file().write(true).open(folder.log())?.set_len(0)
}

/// Streams the last `tail` lines, and with `follow` the output after them, until the pod ends or is removed.
pub(super) fn read(
    folder: Folder,
    tail: usize,
    follow: bool,
) -> BoxStream<'static, Result<Bytes, RuntimeError>> {
    let reader = LogReader { folder, tail, follow, files: Vec::new(), has_begun: false };
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

struct LogReader {
    folder: Folder,
    tail: usize,
    follow: bool,
    /// The files still to be read, in reverse order.
    files: Vec<File>,
    has_begun: bool,
}

impl LogReader {
    /// Returns whether no more output will follow what is in the files now.
    fn is_complete(&self) -> bool {
        let is_running = |record: super::folder::Record| match record.state {
            PodState::Running(process) => process.is_running(),
            PodState::Starting => true,
            PodState::Exited(_) => false,
        };
        !self.follow || !self.folder.load().is_some_and(is_running)
    }

    /// Reads the next piece; `None` at the current end.
    fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        if !self.has_begun {
            self.has_begun = true;
            self.open_files()?;
        }
        while let Some(file) = self.files.last_mut() {
            if file.stream_position()? > file.metadata()?.len() {
                file.rewind()?; // it was truncated
            }
            let mut buffer = vec![0; CHUNK_BYTES];
            let length = file.read(&mut buffer)?;
            if length > 0 {
                buffer.truncate(length);
                return Ok(Some(buffer.into()));
            }
            if self.files.len() == 1 {
                return Ok(None);
            }
            self.files.pop();
        }
        Ok(None)
    }

    fn open_files(&mut self) -> io::Result<()> {
        let Some(mut log) = open(&self.folder.log())? else { return Ok(()) };
        let found = seek_to_tail(&mut log, self.tail)?;
        self.files.push(log);
        if found < self.tail
            && let Some(mut older) = open(&self.folder.older_log())?
        {
            seek_to_tail(&mut older, self.tail - found)?;
            self.files.push(older);
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Seeks to where the last `lines` lines begin, reading backwards. Returns how many there are, at most
/// `lines`.
fn seek_to_tail(file: &mut File, lines: usize) -> io::Result<usize> {
    let end = file.metadata()?.len();
    if lines == 0 {
        file.seek(SeekFrom::End(0))?;
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
            // The newline at the very end closes the last line and begins none.
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
        let found = seek_to_tail(&mut file, lines).unwrap();
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
}
