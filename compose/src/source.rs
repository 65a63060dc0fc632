//! Sources of files, and their paths.

pub(crate) const STDIN: &str = "-";

pub trait FileSources {
    fn read(&self, path: &str) -> Result<String, SourceError>;

    /// The file may be binary. One too large for a secret or config may be truncated.
    fn read_bytes(&self, path: &str) -> Result<Vec<u8>, SourceError> {
        self.read(path).map(String::into_bytes)
    }

    fn kind(&self, path: &str) -> PathKind;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File {
        /// Permission bits, such as `0o644`.
        mode: u32,
    },
    Directory {
        is_empty: bool,
    },
    Missing,
    /// Not a file or directory, or inaccessible.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceError {
    NotFound,
    Unreadable(String),
    /// Outside of the project's folder, which is named.
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

/// `""` for the current folder.
pub(crate) fn folder_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "",
    }
}

/// Without `.` and, where possible, `..`.
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
