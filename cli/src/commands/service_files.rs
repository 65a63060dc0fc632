//! The files of `-f`: a directory stands for the service files in it. Without `-f`, the Compose file of this
//! folder.

use std::path::{Path, PathBuf};

use clap::Args;

use super::error::CommandError;
use crate::output::humanize;

/// Files with these extensions are read from a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The files of `apply` and `diff`.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// File or directory with services, or - for standard input; repeatable. Of a directory the files *.yaml,
    /// *.yml and *.json are read, by name. Compose files are merged, a later one overrides. Without -f, the
    /// Compose file of this folder.
    #[arg(long = "file", short, value_name = "FILE")]
    pub(super) files: Vec<String>,
    #[command(flatten)]
    pub(super) compose: ComposeArgs,
}

/// How Compose files are read.
#[derive(Debug, Default, Args)]
pub(crate) struct ComposeArgs {
    /// Compose: a profile to activate, * for all; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Vec<String>,
    /// Compose: file of variables in the place of `.env`; repeatable.
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Vec<String>,
    /// Compose: name of the app, whatever the file says.
    #[arg(long, short, value_name = "NAME")]
    pub(super) project_name: Option<String>,
    /// Compose: refuse files with anything that is not honoured.
    #[arg(long)]
    pub(super) strict: bool,
}

impl ComposeArgs {
    /// Returns whether something was chosen that says how Compose files are read.
    pub(super) fn is_set(&self) -> bool {
        !self.profile.is_empty() || !self.env_file.is_empty() || self.project_name.is_some()
    }
}

/// Returns the Compose file of this folder and the one that overrides it, or those of `COMPOSE_FILE`.
///
/// # Errors
/// If there is none.
pub(super) fn of_this_folder() -> Result<Vec<String>, CommandError> {
    if let Some(files) = std::env::var("COMPOSE_FILE").ok().filter(|files| !files.is_empty()) {
        return Ok(files.split(':').map(str::to_owned).collect());
    }
    default_files(&|file| Path::new(file).is_file()).ok_or_else(|| {
        let names = compose::DEFAULT_FILES.join(", ");
        CommandError::Usage(format!("give a file with -f: this folder has no {names}"))
    })
}

/// Returns the file with a usual name, and the one that overrides it.
pub(super) fn default_files(exists: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
    let file = compose::DEFAULT_FILES.into_iter().find(|file| exists(file))?;
    let others = compose::override_of(file).into_iter().filter(|other| exists(other));
    Some(std::iter::once(file.to_owned()).chain(others).collect())
}

/// Replaces each directory by its service files, in the order of their names. Directories in it are not read.
///
/// # Errors
/// A directory that cannot be read, or that has no such file.
pub(super) fn expand(files: &[String]) -> Result<Vec<String>, CommandError> {
    let mut expanded = Vec::new();
    for file in files {
        if file != "-" && Path::new(file).is_dir() {
            expanded.extend(service_files(file)?);
        } else {
            expanded.push(file.clone());
        }
    }
    Ok(expanded)
}

fn service_files(directory: &str) -> Result<Vec<String>, CommandError> {
    let cannot_read = |error: std::io::Error| {
        CommandError::Other(format!("cannot read {directory}: {}", humanize::system_error(&error)))
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot_read)? {
        paths.push(entry.map_err(cannot_read)?.path());
    }
    paths.retain(|path| is_service_file(path) && !path.is_dir());
    paths.sort();
    if paths.is_empty() {
        return Err(CommandError::NotFound(format!("{directory}: no *.yaml, *.yml or *.json in it")));
    }
    Ok(paths.iter().map(|path| path.display().to_string()).collect())
}

fn is_service_file(path: &Path) -> bool {
    path.extension().and_then(|text| text.to_str()).is_some_and(|text| EXTENSIONS.contains(&text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn the_compose_file_of_a_folder_comes_with_its_override() {
        let found =
            |there: &[&str]| default_files(&|file| there.contains(&file)).map(|files| files.join(" "));
        assert_eq!(found(&["docker-compose.yml"]).unwrap(), "docker-compose.yml");
        assert_eq!(found(&["compose.yaml", "docker-compose.yml"]).unwrap(), "compose.yaml");
        let both = found(&["compose.yml", "compose.override.yml"]).unwrap();
        assert_eq!(both, "compose.yml compose.override.yml");
        assert_eq!(found(&["web.yaml"]), None);
    }

    #[test]
    fn a_directory_stands_for_its_service_files_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for name in ["b.yml", "a.yaml", "c.json", "notes.txt", "Makefile"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("nested.yaml")).unwrap();
        let files = expand(&["-".to_owned(), path(""), "other.yaml".to_owned()]).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["-", "a.yaml", "b.yml", "c.json", "other.yaml"]);
        assert_eq!(expand(&[path("nested.yaml")]).unwrap_err().exit(), Exit::NotFound);
    }
}
