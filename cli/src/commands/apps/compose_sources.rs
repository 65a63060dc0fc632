//! Files that Compose files name. Outside the project's folder they are refused: a foreign Compose file could
//! send them to programs that it runs in the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use compose::{FileSources, PathKind, Project, SourceError};
use model::value::MAX_VALUE_BYTES;

use output::humanize;

/// Against endless files.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub(crate) fn folder_of_project(directory: Option<&str>, files: &[String]) -> PathBuf {
    let first = Path::new(files.first().map_or("", String::as_str));
    let folder = directory.map(Path::new).or_else(|| first.parent());
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

pub(crate) struct ComposeSources {
    /// Files already read: standard input can be read only once.
    texts: BTreeMap<String, String>,
    named: BTreeSet<String>,
    folder: PathBuf,
    allows_outside: bool,
}

impl ComposeSources {
    pub(crate) fn new(project: &Project, allows_outside: bool, texts: BTreeMap<String, String>) -> Self {
        let folder = folder_of_project(project.directory.as_deref(), &project.files);
        let named = project.files.iter().chain(&project.env_files).cloned().collect();
        Self { texts, named, folder, allows_outside }
    }

    /// Plus one byte if there are more.
    fn bytes(&self, path: &str, limit: u64) -> Result<Vec<u8>, SourceError> {
        let is_named = self.named.contains(path);
        let whole = Path::new(path).canonicalize().map_err(|error| source_error(&error))?;
        if !is_named && !self.allows_outside && !whole.starts_with(&self.folder) {
            return Err(SourceError::Outside(self.folder.display().to_string()));
        }
        if !is_named && !whole.is_file() {
            return Err(SourceError::Unreadable("it is not a plain file".to_owned()));
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(whole).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(|error| source_error(&error))
    }
}

impl FileSources for ComposeSources {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        if let Some(text) = self.texts.get(path) {
            return Ok(text.clone());
        }
        let bytes = self.bytes(path, MAX_FILE_BYTES)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(SourceError::Unreadable(format!("it has more than {} MiB", MAX_FILE_BYTES >> 20)));
        }
        String::from_utf8(bytes).map_err(|_| SourceError::Unreadable("it is not UTF-8".to_owned()))
    }

    fn read_bytes(&self, path: &str) -> Result<Vec<u8>, SourceError> {
        self.bytes(path, MAX_VALUE_BYTES as u64)
    }

    fn kind(&self, path: &str) -> PathKind {
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => PathKind::File { mode: found.permissions().mode() & 0o777 },
            Ok(found) if found.is_dir() => match std::fs::read_dir(path) {
                Ok(mut entries) => PathKind::Directory { is_empty: entries.next().is_none() },
                // It may contain files.
                Err(_) => PathKind::Directory { is_empty: false },
            },
            Ok(_) => PathKind::Other,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => PathKind::Missing,
            Err(_) => PathKind::Other,
        }
    }
}

fn source_error(error: &std::io::Error) -> SourceError {
    match error.kind() {
        std::io::ErrorKind::NotFound => SourceError::NotFound,
        _ => SourceError::Unreadable(humanize::system_error(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn only_plain_files_of_the_projects_folder_are_read_unless_they_are_named() {
        let outer = tempfile::tempdir().unwrap();
        let path = |name: &str| outer.path().join(name).display().to_string();
        std::fs::create_dir(path("app")).unwrap();
        for name in ["app/compose.yaml", "app/web.env", "key"] {
            std::fs::write(path(name), "A=1\n").unwrap();
        }
        std::os::unix::fs::symlink(path("key"), path("app/link")).unwrap();
        let project = |env_files: &[String]| Project {
            files: vec![path("app/compose.yaml")],
            env_files: env_files.to_vec(),
            ..Project::default()
        };
        let sources = ComposeSources::new(&project(&[]), false, BTreeMap::new());
        assert_eq!(sources.read(&path("app/web.env")).unwrap(), "A=1\n");
        assert_eq!(sources.read(&path("app/none")), Err(SourceError::NotFound));
        for outside in
            [path("app/../key"), path("app/link"), "/dev/zero".to_owned(), "/etc/passwd".to_owned()]
        {
            assert!(matches!(sources.read(&outside), Err(SourceError::Outside(_))), "{outside}");
            assert!(matches!(sources.read_bytes(&outside), Err(SourceError::Outside(_))), "{outside}");
        }
        let allowing = ComposeSources::new(&project(&[]), true, BTreeMap::new());
        assert_eq!(allowing.read(&path("app/link")).unwrap(), "A=1\n");
        assert!(matches!(allowing.read("/dev/zero"), Err(SourceError::Unreadable(_))));
        let named =
            ComposeSources::new(&project(&[path("key"), "/dev/zero".to_owned()]), false, BTreeMap::new());
        assert_eq!(named.read(&path("key")).unwrap(), "A=1\n");
        assert_eq!(
            named.read("/dev/zero"),
            Err(SourceError::Unreadable("it has more than 16 MiB".to_owned()))
        );
    }
}
