//! Files of `-f`, or this folder's Compose file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use compose::{Allowance, ComposeFinding, Project};
use output::humanize;

use super::compose_sources::{ComposeSources, folder_of_project};
use crate::commands::error::{CommandError, CommandResult};

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The files of `apply` and `diff`.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// File or directory with services, or - for standard input; repeatable. Of a directory the files *.yaml,
    /// *.yml and *.json are read, by name. Compose files are merged, a later one overrides. Without -f, the
    /// Compose file of this folder.
    #[arg(long = "file", short, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
}

/// How Compose files are read.
#[derive(Debug, Default, Args)]
pub(crate) struct ComposeArgs {
    /// Compose: a profile to activate, * for all; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Vec<String>,
    /// Compose: file of variables in the place of `.env`; repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<String>,
    /// Compose: name of the app, whatever the file says.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) project_name: Option<String>,
    /// Compose: the folder in which relative paths begin; by default that of the first file.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) project_directory: Option<String>,
    /// Compose: refuse files with anything that is not honoured, or is otherwise than with Compose.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Compose: accept a field that is refused otherwise; repeatable.
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) allow: Vec<Allowed>,
}

/// The values of `--allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Allowed {
    /// Leave out directories of this machine, also where containers write to them.
    LostDirectories,
    /// Run services with `network_mode: none` or an internal network without that isolation.
    NoIsolation,
    /// Run services with `deploy.mode: global-job` or `replicated-job` as services with `replicas` pods.
    OneForAll,
    /// Send files that are not in the folder of the project.
    OutsideFiles,
}

impl ComposeArgs {
    pub(crate) fn is_set(&self) -> bool {
        let has_list = !self.profile.is_empty() || !self.env_file.is_empty() || !self.allow.is_empty();
        has_list || self.project_name.is_some() || self.project_directory.is_some()
    }

    pub(crate) fn allows_outside_files(&self) -> bool {
        self.allow.contains(&Allowed::OutsideFiles)
    }

    pub(crate) fn project(&self, files: Vec<String>) -> Project {
        let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let environment: BTreeMap<String, String> = std::env::vars_os().filter_map(variable).collect();
        let listed = environment.get("COMPOSE_ENV_FILES").map_or("", String::as_str);
        let env_files = match self.env_file.is_empty() {
            true => {
                listed.split(',').map(|file| file.trim().to_owned()).filter(|file| !file.is_empty()).collect()
            }
            false => self.env_file.clone(),
        };
        let directory = self.project_directory.clone().map(|folder| match folder.as_str() {
            "" | "." => String::new(),
            folder => folder.to_owned(),
        });
        let folder = folder_of_project(directory.as_deref(), &files);
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        Project {
            files,
            folder_name: name.unwrap_or_default(),
            name: self.project_name.clone(),
            env_files,
            profiles: self.profile.clone(),
            environment,
            shares_volumes: false,
            kept_volumes: Default::default(),
            directory,
            allowed: self.allowances(),
        }
    }

    fn allowances(&self) -> BTreeSet<Allowance> {
        let allowance = |allowed: &Allowed| match allowed {
            Allowed::LostDirectories => Some(Allowance::LostDirectories),
            Allowed::NoIsolation => Some(Allowance::NoIsolation),
            Allowed::OneForAll => Some(Allowance::OneForAll),
            Allowed::OutsideFiles => None,
        };
        self.allow.iter().filter_map(allowance).collect()
    }
}

/// Also looks in ancestors of this folder, unless `COMPOSE_FILE` names files.
pub(crate) fn of_this_folder(args: &ComposeArgs) -> CommandResult<Vec<String>> {
    let project = args.project(Vec::new());
    let sources = ComposeSources::new(&project, args.allows_outside_files(), BTreeMap::new());
    let variables = compose::variables(&project, &sources).map_err(|found| {
        let found: Vec<String> = found.iter().map(ComposeFinding::to_string).collect();
        CommandError::Usage(found.join("\n"))
    })?;
    let variable = |name: &str| variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
    if let Some(files) = variable("COMPOSE_FILE") {
        let separator = variable("COMPOSE_PATH_SEPARATOR").unwrap_or(":");
        return Ok(files.split(separator).filter(|file| !file.is_empty()).map(str::to_owned).collect());
    }
    let exists = |file: &str| Path::new(file).is_file();
    let found = match &project.directory {
        Some(folder) if !folder.is_empty() => default_files(&format!("{folder}/"), &exists),
        _ => {
            let depth = std::env::current_dir().map_or(0, |folder| folder.components().count());
            (0..depth).find_map(|above| default_files(&"../".repeat(above), &exists))
        }
    };
    found.ok_or_else(|| {
        let names = compose::DEFAULT_FILES.join(", ");
        CommandError::Usage(format!("give a file with -f: neither this folder nor one around it has {names}"))
    })
}

pub(crate) fn default_files(prefix: &str, exists: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
    let first =
        |names: [&str; 4]| names.map(|name| format!("{prefix}{name}")).into_iter().find(|path| exists(path));
    let file = first(compose::DEFAULT_FILES)?;
    Some(std::iter::once(file).chain(first(compose::OVERRIDE_FILES)).collect())
}

/// Sorted by name, without subdirectories. A directory without service files is an error.
pub(crate) fn expand(files: &[String]) -> CommandResult<Vec<String>> {
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

fn service_files(directory: &str) -> CommandResult<Vec<String>> {
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
            |there: &[&str]| default_files("", &|file| there.contains(&file)).map(|files| files.join(" "));
        assert_eq!(found(&["docker-compose.yml"]).unwrap(), "docker-compose.yml");
        assert_eq!(found(&["compose.yaml", "docker-compose.yml"]).unwrap(), "compose.yaml");
        let both = found(&["compose.yml", "compose.override.yml"]).unwrap();
        assert_eq!(both, "compose.yml compose.override.yml");
        for other in ["docker-compose.override.yaml", "compose.override.yml", "docker-compose.override.yml"] {
            let both = found(&["docker-compose.yml", other]).unwrap();
            assert_eq!(both, format!("docker-compose.yml {other}"));
        }
        let first = found(&["compose.yaml", "docker-compose.override.yml", "compose.override.yaml"]).unwrap();
        assert_eq!(first, "compose.yaml compose.override.yaml");
        let above = default_files("../", &|file| file == "../compose.yml").unwrap();
        assert_eq!(above, ["../compose.yml"]);
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
