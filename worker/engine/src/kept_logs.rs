//! Logs of removed containers on this worker's disk, limited in age and size. A file has a line of JSON with
//! its owner, then the lines, each after its time.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use daemon::config::Config;
use daemon::state_file::IfFound;
use futures_util::stream::{self, StreamExt};
use model::ids::{ContainerName, PodId, ServiceName};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::{EngineLine, LineQuery, LineStream, Runtime, RuntimeError};

const MAX_LINES: usize = 200_000;
/// Also at most a quarter of the total.
const MAX_FILE_BYTES: u64 = 16 << 20;
const READ_TIME: Duration = Duration::from_secs(10);
/// Each is in memory until it is written.
const CONCURRENCY: usize = 2;
const BATCH: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOwner {
    pub pod: PodId,
    /// Such as `web-0`.
    pub name: String,
    pub service: Option<ServiceName>,
    pub container: Option<ContainerName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLog {
    pub file: String,
    pub owner: KeptOwner,
}

pub struct KeptLogs {
    directory: Option<PathBuf>,
    keep: Duration,
    max_bytes: u64,
    permits: Semaphore,
}

impl KeptLogs {
    pub fn new(config: &Config, uses_machine: bool) -> Self {
        let directory = config.data_dir.join(format!("{}.logs", config.node));
        let is_on = !config.log_keep.is_zero() && config.log_keep_bytes > 0 && uses_machine;
        Self {
            directory: is_on.then_some(directory),
            keep: config.log_keep,
            max_bytes: config.log_keep_bytes,
            permits: Semaphore::new(CONCURRENCY),
        }
    }

    pub fn is_on(&self) -> bool {
        self.directory.is_some()
    }

    /// A container's removal does not wait for lines that are slow to read.
    pub async fn keep(&self, runtime: &dyn Runtime, handle: &str, owner: KeptOwner) {
        let Some(directory) = self.directory.clone() else { return };
        let kept = tokio::time::timeout(READ_TIME, async {
            let _permit = self.permits.acquire().await;
            let max = MAX_FILE_BYTES.min(self.max_bytes / 4);
            let lines = last_lines(runtime, handle, None, u64::MAX, max as usize).await?;
            if lines.is_empty() {
                return Ok(());
            }
            let (keep, max_bytes) = (self.keep, self.max_bytes);
            let write = move || {
                write(&directory, &owner, &lines)?;
                expire(&directory, keep, max_bytes)
            };
            let written =
                tokio::task::spawn_blocking(write).await.map_err(io::Error::other).and_then(|done| done);
            written.map_err(|error| RuntimeError::Failed(error.to_string()))
        });
        let error = match kept.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not within {} s", READ_TIME.as_secs()),
        };
        tracing::warn!(container = handle, error, "the log of a container that is removed could not be kept");
    }

    /// Oldest first.
    pub async fn list(&self) -> Vec<KeptLog> {
        let list = |directory: &Path| {
            let files = files(directory).unwrap_or_default();
            let kept = |file: KeptFile| {
                let owner = owner(&directory.join(&file.name))?;
                Some(KeptLog { file: file.name, owner })
            };
            files.into_iter().filter_map(kept).collect()
        };
        self.on_disk(list).await.unwrap_or_default()
    }

    pub fn read(&self, kept: &KeptLog, tail: Option<usize>) -> LineStream {
        let path = self.directory.clone().unwrap_or_default().join(&kept.file);
        let opened = stream::once(async move {
            let read = tokio::task::spawn_blocking(move || read(&path, tail)).await;
            read.map_err(io::Error::other).and_then(|read| read)
        });
        let batches = opened.flat_map(|read| match read {
            Ok(lines) => stream::iter(in_batches(&lines)),
            Err(error) => stream::iter(vec![Err(RuntimeError::Failed(error.to_string()))]),
        });
        batches.boxed()
    }

    pub async fn size(&self) -> (u64, u64) {
        let found = self.on_disk(files).await.and_then(Result::ok).unwrap_or_default();
        (found.len() as u64, found.iter().map(|file| file.bytes).sum())
    }

    pub async fn remove_oldest(&self) {
        let remove = |directory: &Path| match files(directory)?.first() {
            Some(oldest) => std::fs::remove_file(directory.join(&oldest.name)),
            None => Ok(()),
        };
        if let Some(Err(error)) = self.on_disk(remove).await {
            tracing::warn!(%error, "the log of a removed container could not be removed");
        }
    }

    pub async fn expire(&self) {
        let (keep, max_bytes) = (self.keep, self.max_bytes);
        let expired = self.on_disk(move |directory| expire(directory, keep, max_bytes)).await;
        if let Some(Err(error)) = expired {
            tracing::warn!(%error, "old logs of removed containers could not be removed");
        }
    }

    /// `None` if no logs are kept.
    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce(&Path) -> T + Send + 'static) -> Option<T> {
        let directory = self.directory.clone()?;
        tokio::task::spawn_blocking(move || work(&directory)).await.ok()
    }
}

/// `tail` is the number of last lines.
pub async fn ended_runs(
    runtime: &dyn Runtime,
    handle: &str,
    tail: Option<usize>,
    running_since: Option<u64>,
) -> Result<LineStream, RuntimeError> {
    let before = running_since.unwrap_or(u64::MAX);
    let lines = last_lines(runtime, handle, tail, before, MAX_FILE_BYTES as usize).await?;
    Ok(stream::iter(in_batches(&Vec::from(lines))).boxed())
}

fn in_batches(lines: &[EngineLine]) -> Vec<Result<Vec<EngineLine>, RuntimeError>> {
    lines.chunks(BATCH).map(|batch| Ok(batch.to_vec())).collect()
}

async fn last_lines(
    runtime: &dyn Runtime,
    handle: &str,
    tail: Option<usize>,
    before: u64,
    max: usize,
) -> Result<VecDeque<EngineLine>, RuntimeError> {
    let query = LineQuery { tail: Some(MAX_LINES), follow: false, after: 0 };
    let mut stream = match runtime.lines(handle, query).await {
        Ok(stream) => stream,
        Err(RuntimeError::NotFound(_)) => return Ok(VecDeque::new()),
        Err(error) => return Err(error),
    };
    let size = |line: &EngineLine| line.text.len() + 21;
    let (mut lines, mut bytes) = (VecDeque::new(), 0);
    while let Some(batch) = stream.next().await {
        for line in batch?.into_iter().filter(|line| line.time < before) {
            bytes += size(&line);
            lines.push_back(line);
            while bytes > max || tail.is_some_and(|tail| lines.len() > tail) {
                let Some(oldest) = lines.pop_front() else { break };
                bytes -= size(&oldest);
            }
        }
    }
    Ok(lines)
}

fn write(directory: &Path, owner: &KeptOwner, lines: &VecDeque<EngineLine>) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // The name sorts by time.
    let time = lines.back().map_or(0, |line| line.time);
    let container = owner.container.as_ref().map_or_else(String::new, |name| format!("-{name}"));
    let name = format!("{time:020}-{}{container}", owner.name);
    let new = directory.join(format!("{name}.new"));
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    let mut file = io::BufWriter::new(file);
    serde_json::to_writer(&mut file, owner)?;
    file.write_all(b"\n")?;
    for line in lines {
        write!(file, "{} ", line.time)?;
        file.write_all(&line.text)?;
        file.write_all(b"\n")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?;
    std::fs::rename(new, directory.join(format!("{name}.log")))
}

fn owner(path: &Path) -> Option<KeptOwner> {
    let mut line = String::new();
    BufReader::new(std::fs::File::open(path).ok()?).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn read(path: &Path, tail: Option<usize>) -> io::Result<Vec<EngineLine>> {
    let text = Bytes::from(std::fs::read(path)?);
    let line = |line: &[u8]| {
        let end = line.iter().position(|byte| *byte == b' ')?;
        let time = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
        Some(EngineLine { time, text: text.slice_ref(&line[end + 1..]) })
    };
    // The first line is the owner.
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let mut lines: Vec<EngineLine> = lines.filter_map(line).collect();
    let surplus = tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    lines.drain(..surplus);
    Ok(lines)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptFile {
    name: String,
    bytes: u64,
    age: Duration,
}

/// Removes partial files of a worker that ended while writing.
fn files(directory: &Path) -> io::Result<Vec<KeptFile>> {
    let Some(entries) = std::fs::read_dir(directory).if_found()? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
        let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        let age = age.unwrap_or_default();
        if name.ends_with(".log") {
            found.push(KeptFile { name, bytes: metadata.len(), age });
        } else if name.ends_with(".new") && age > READ_TIME {
            std::fs::remove_file(entry.path())?;
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn expire(directory: &Path, keep: Duration, max_bytes: u64) -> io::Result<()> {
    let files = files(directory)?;
    for file in surplus(&files, keep, max_bytes) {
        std::fs::remove_file(directory.join(&file.name))?;
    }
    Ok(())
}

/// `files` are sorted, oldest first. Pure.
fn surplus(files: &[KeptFile], keep: Duration, max_bytes: u64) -> Vec<&KeptFile> {
    let (old, rest): (Vec<&KeptFile>, Vec<&KeptFile>) = files.iter().partition(|file| file.age > keep);
    let mut bytes: u64 = rest.iter().map(|file| file.bytes).sum();
    let beyond = rest.into_iter().take_while(|file| {
        let is_beyond = bytes > max_bytes;
        bytes -= file.bytes;
        is_beyond
    });
    old.into_iter().chain(beyond).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn owner_of(name: &str) -> KeptOwner {
        KeptOwner {
            pod: PodId::new(name).unwrap(),
            name: name.to_owned(),
            service: Some(ServiceName::new("web").unwrap()),
            container: None,
        }
    }

    fn line(time: u64, text: &'static [u8]) -> EngineLine {
        EngineLine { time, text: Bytes::from_static(text) }
    }

    #[test]
    fn what_is_too_old_goes_and_then_the_oldest_beyond_the_size() {
        let file = |name: &str, bytes, hours: u64| KeptFile {
            name: name.to_owned(),
            bytes,
            age: Duration::from_secs(hours * 3600),
        };
        let files = [file("a", 10, 30), file("b", 40, 5), file("c", 30, 3), file("d", 30, 1)];
        let day = Duration::from_secs(24 * 3600);
        for (max, expected) in [
            (100, vec!["a"]),
            (99, vec!["a", "b"]),
            (60, vec!["a", "b"]),
            (59, vec!["a", "b", "c"]),
            (0, vec!["a", "b", "c", "d"]),
        ] {
            let names: Vec<&str> =
                surplus(&files, day, max).into_iter().map(|file| file.name.as_str()).collect();
            assert_eq!(names, expected, "{max}");
        }
        assert_eq!(surplus(&files, day * 9, 1000), Vec::<&KeptFile>::new());
    }

    #[test]
    fn a_log_is_read_back_with_its_times_and_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("logs");
        let lines = VecDeque::from([line(5, b"first"), line(7, b""), line(9, b"two words \xff")]);
        write(&directory, &owner_of("web-0"), &lines).unwrap();
        write(&directory, &owner_of("web-1"), &VecDeque::from([line(1, b"older")])).unwrap();
        std::fs::write(directory.join("x.new"), "half").unwrap();
        let files = files(&directory).unwrap();
        assert_eq!(files.len(), 2);
        let path = directory.join(&files[1].name);
        assert_eq!(owner(&path).unwrap(), owner_of("web-0"));
        assert_eq!(read(&path, None).unwrap(), Vec::from(lines.clone()));
        assert_eq!(read(&path, Some(1)).unwrap(), [line(9, b"two words \xff")]);
        expire(&directory, Duration::from_secs(60), files[1].bytes).unwrap();
        let left = super::files(&directory).unwrap();
        assert_eq!((left.len(), &left[0].name), (1, &files[1].name), "the oldest went");
    }
}
