//! Small files in which a process leaves state for the next one.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub trait IfFound<T> {
    fn if_found(self) -> io::Result<Option<T>>;
}

impl<T> IfFound<T> for io::Result<T> {
    fn if_found(self) -> io::Result<Option<T>> {
        match self {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }
}

/// After a crash at any point it has the old content or the new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    path: PathBuf,
    mode: u32,
    is_durable: bool,
    creates_directory: bool,
}

impl StateFile {
    /// A write waits for the disk: it survives a crash of the machine.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o666, is_durable: true, creates_directory: false }
    }

    #[must_use]
    pub fn private(self) -> Self {
        Self { mode: 0o600, ..self }
    }

    /// Writes do not wait for the disk: the content is useless after a reboot.
    #[must_use]
    pub fn until_reboot(self) -> Self {
        Self { is_durable: false, ..self }
    }

    #[must_use]
    pub fn creating_directory(self) -> Self {
        Self { creates_directory: true, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        fs::read(&self.path).if_found()
    }

    pub fn load<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        Ok(self.read()?.map(|text| serde_json::from_slice(&text)).transpose()?)
    }

    /// `loss` is logged if it is unreadable: `nothing is routed until Redis answers`.
    pub fn load_or_default<T: DeserializeOwned + Default>(&self, loss: &str) -> T {
        let loaded = self.load().unwrap_or_else(|why| {
            tracing::warn!("{} cannot be read: {why}; {loss}", self.path.display());
            None
        });
        loaded.unwrap_or_default()
    }

    pub fn write(&self, content: &[u8]) -> io::Result<()> {
        if self.creates_directory {
            fs::create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
        }
        let new = self.beside("tmp");
        // A leftover may have other permissions.
        fs::remove_file(&new).if_found()?;
        self.write_new(&new, content)?;
        fs::rename(&new, &self.path)
    }

    pub fn save<T: Serialize>(&self, value: &T) -> io::Result<()> {
        self.write(&serde_json::to_vec(value)?)
    }

    /// Returns false if it exists. Of several writers one is first, even on two machines; a reader sees all
    /// of the content or none.
    pub fn create(&self, content: &[u8]) -> io::Result<bool> {
        let new = self.beside(&format!("{:016x}", rand::random::<u64>()));
        let linked = self.write_new(&new, content).and_then(|()| fs::hard_link(&new, &self.path));
        let removed = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => removed.map(|()| false),
            Err(error) => Err(error),
            Ok(()) => removed.map(|()| true),
        }
    }

    pub async fn write_on_thread(&self, content: Vec<u8>) -> io::Result<()> {
        let file = self.clone();
        let written = tokio::task::spawn_blocking(move || file.write(&content)).await;
        written.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
    }

    /// Writes `text()` after each change, forever. Of several failures the first is logged, with `loss`.
    pub async fn keep(&self, interval: Duration, mut saved: String, text: impl Fn() -> String, loss: &str) {
        let mut is_logged = false;
        loop {
            tokio::time::sleep(interval).await;
            let text = text();
            if text == saved {
                continue;
            }
            match self.write_on_thread(text.clone().into_bytes()).await {
                Ok(()) => (saved, is_logged) = (text, false),
                Err(error) if !is_logged => {
                    is_logged = true;
                    tracing::warn!("{} cannot be written: {error}; {loss}", self.path.display());
                }
                Err(_) => {}
            }
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(".");
        path.push(suffix);
        path.into()
    }

    fn write_new(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(self.mode).open(path)?;
        file.write_all(content)?;
        if self.is_durable { file.sync_all() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_write_replaces_all_and_what_a_crash_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/state");
        let mode = |file: &StateFile| fs::metadata(file.path()).unwrap().permissions().mode() & 0o777;
        let (open, private) =
            (StateFile::new(&path).creating_directory(), StateFile::new(&path).private().until_reboot());
        assert_eq!(open.read().unwrap(), None);
        open.save(&"a longer text").unwrap();
        fs::write(path.with_extension("tmp"), "half of ").unwrap();
        private.save(&"short").unwrap();
        assert_eq!((open.load::<String>().unwrap().as_deref(), mode(&private)), (Some("short"), 0o600));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, "{").unwrap();
        assert!(open.load::<String>().is_err());
        assert_eq!(open.load_or_default::<String>("it is lost"), "");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().join("state"));
        file.write(b"old").unwrap();
        // As if the disk were full.
        fs::create_dir(file.beside("tmp")).unwrap();
        assert!(file.write(b"new").is_err());
        assert_eq!(file.read().unwrap().as_deref(), Some(&b"old"[..]));
    }

    #[test]
    fn of_two_that_create_a_file_the_first_decides() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().join("key")).private();
        assert!(file.create(b"first").unwrap() && !file.create(b"second").unwrap());
        assert_eq!(file.read().unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
