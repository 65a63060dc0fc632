//! Sources of files: the user's disk, or a map in tests. Paths are handled as texts.

use std::collections::BTreeMap;

pub(crate) const STDIN: &str = "-";

/// Reads the files that a Compose file names.
pub trait FileSources {
    /// Returns the content of a file.
    ///
    /// # Errors
    /// If the file does not exist or cannot be read.
    fn read(&self, path: &str) -> Result<String, SourceError>;

    /// Returns the content of a possibly binary file. May truncate a file too large for a secret or config.
    ///
    /// # Errors
    /// As for [`FileSources::read`].
    fn read_bytes(&self, path: &str) -> Result<Vec<u8>, SourceError> {
        self.read(path).map(String::into_bytes)
    }

    /// Returns the kind of object at a path.
    fn kind(&self, path: &str) -> PathKind {
        match self.read(path) {
            Ok(_) => PathKind::File { mode: 0o644 },
            Err(SourceError::NotFound) => PathKind::Missing,
            Err(_) => PathKind::Other,
        }
    }
}

/// Kind of object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A file.
    File {
        /// Permission bits, such as `0o644`.
        mode: u32,
    },
    /// A directory.
    Directory {
        /// True if the directory is empty.
        is_empty: bool,
    },
    /// Nothing.
    Missing,
    /// Not a file or directory, or inaccessible.
    Other,
}

/// Reason why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceError {
    /// No file exists at this path.
    NotFound,
    /// The file exists but is unreadable, with the reason for the user.
    Unreadable(String),
    /// The file is outside of the project's folder, which is named.
    Outside(String),
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("no such file"),
            Self::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
            Self::Outside(folder) => write!(
                f,
                "is outside of {folder}, the folder of the project: move it there, or add `--allow outside-files` if the \
                 cluster may have what is in it"
            ),
        }
    }
}

/// Files by path. A prefix of other paths is a directory.
impl FileSources for BTreeMap<String, String> {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        self.get(path).cloned().ok_or(SourceError::NotFound)
    }

    fn kind(&self, path: &str) -> PathKind {
        let inside = format!("{path}/");
        match self.contains_key(path) {
            true => PathKind::File { mode: 0o644 },
            false if self.keys().any(|known| known.starts_with(&inside)) => {
                PathKind::Directory { is_empty: false }
            }
            false => PathKind::Missing,
        }
    }
}

/// Returns the folder of a file; `""` for the current one.
pub(crate) fn folder_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "",
    }
}

/// Joins a relative path to a folder, without `.` and, as far as the text allows, without `..`.
pub(crate) fn join(folder: &str, path: &str) -> String {
    if path == STDIN {
        return path.to_owned();
    }
    let whole = match (folder, path.starts_with('/')) {
        (_, true) | ("", _) => path.to_owned(),
        (folder, false) => format!("{folder}/{path}"),
    };
    let root = if whole.starts_with('/') { "/" } else { "" };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => drop(parts.pop()),
            (part, _) => parts.push(part),
        }
    }
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_texts() {
        for (folder, path, joined) in [
            ("", "a.yml", "a.yml"),
            ("", "./a.yml", "a.yml"),
            ("app", "./web.env", "app/web.env"),
            ("app", "../common/a.yml", "common/a.yml"),
            ("../app", "../a.yml", "../a.yml"),
            ("..", "../a.yml", "../../a.yml"),
            ("/srv/app", "web.env", "/srv/app/web.env"),
            ("/srv/app", "/etc/web.env", "/etc/web.env"),
            ("app", "-", "-"),
        ] {
            assert_eq!(join(folder, path), joined, "{folder} {path}");
        }
        for (path, folder) in [("a.yml", ""), ("app/a.yml", "app"), ("/a.yml", "/"), ("-", "")] {
            assert_eq!(folder_of(path), folder, "{path}");
        }
    }
}
