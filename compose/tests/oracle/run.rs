//! Runs Docker Compose and kubeleet on one project in a temporary folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kubeleet_compose::{App, FileSources, PathKind, Project, SourceError, load};
use serde_json::Value;

use crate::compare;

/// `None` if it is neither installed nor required.
pub(crate) fn program() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let program = std::env::var_os("DOCKER_COMPOSE").map(PathBuf::from);
    let program = program.unwrap_or_else(|| target.join("oracle/docker-compose"));
    if program.is_file() {
        return Some(program);
    }
    testkit::require::skipped(
        "compose",
        &format!("{} is missing: scripts/install compose", program.display()),
    );
    None
}

#[derive(Debug, Default)]
pub(crate) struct Case {
    pub(crate) title: String,
    pub(crate) files: Vec<(String, String)>,
    pub(crate) compose_files: Vec<String>,
    pub(crate) profiles: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) refused: Option<String>,
    pub(crate) is_wrong: bool,
}

impl Case {
    /// Each has a title, lines with `$ files`, `ENV NAME=value`, `PROFILE name`, `REFUSED what kubeleet says`
    /// or `WRONG`, and files after `== path`.
    pub(crate) fn all(text: &str) -> Vec<Self> {
        text.split("=====\n").filter(|case| !case.trim().is_empty()).map(Self::one).collect()
    }

    fn one(text: &str) -> Self {
        let mut case = Self::default();
        for line in text.split_inclusive('\n') {
            let words = line.trim_end();
            if let Some(path) = words.strip_prefix("== ") {
                case.files.push((path.to_owned(), String::new()));
            } else if let Some((_, file)) = case.files.last_mut() {
                file.push_str(&line.replace("\\t", "\t"));
            } else if let Some(files) = words.strip_prefix("$ ") {
                case.compose_files = files.split(' ').map(str::to_owned).collect();
            } else if let Some((name, value)) =
                words.strip_prefix("ENV ").and_then(|line| line.split_once('='))
            {
                case.environment.insert(name.to_owned(), value.to_owned());
            } else if let Some(profile) = words.strip_prefix("PROFILE ") {
                case.profiles.push(profile.to_owned());
            } else if let Some(detail) = words.strip_prefix("REFUSED ") {
                case.refused = Some(detail.to_owned());
            } else if words == "WRONG" {
                case.is_wrong = true;
            } else if !words.is_empty() {
                case.title = words.to_owned();
            }
        }
        if case.compose_files.is_empty() {
            case.compose_files.push("compose.yaml".to_owned());
        }
        case
    }

    pub(crate) fn shown(&self) -> String {
        self.files.iter().map(|(path, text)| format!("== {path}\n{text}")).collect()
    }
}

pub(crate) enum Outcome {
    Read(Vec<String>),
    RefusedByKubeleet(Vec<String>),
    RefusedByCompose(String),
}

impl Outcome {
    pub(crate) fn differences(self, case: &Case) -> Vec<String> {
        match (self, &case.refused, case.is_wrong) {
            (Self::Read(_), _, true) => vec!["Compose takes it".to_owned()],
            (Self::Read(found), None, false) => found,
            (Self::Read(_), Some(_), false) => vec!["kubeleet does not refuse it".to_owned()],
            (Self::RefusedByKubeleet(found), Some(expected), false)
                if found.iter().any(|detail| detail.contains(expected)) =>
            {
                Vec::new()
            }
            (Self::RefusedByKubeleet(found), _, _) => vec![format!("kubeleet refuses it: {found:?}")],
            (Self::RefusedByCompose(_), _, true) => Vec::new(),
            (Self::RefusedByCompose(detail), _, false) => vec![format!("Compose refuses it: {detail}")],
        }
    }
}

pub(crate) fn run(program: &Path, case: &Case) -> Outcome {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().canonicalize().unwrap().join("app");
    for (path, text) in &case.files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut environment = case.environment.clone();
    environment.insert("HOME".to_owned(), "/home/user".to_owned());
    let mut command = Command::new(program);
    command.env_clear().envs(&environment).current_dir(&folder);
    for file in &case.compose_files {
        command.args(["-f", file]);
    }
    for profile in &case.profiles {
        command.args(["--profile", profile]);
    }
    let output = command.args(["config", "--format", "json"]).output().unwrap();
    if !output.status.success() {
        return Outcome::RefusedByCompose(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    let project = Project {
        files: case.compose_files.clone(),
        folder_name: "app".to_owned(),
        profiles: case.profiles.clone(),
        environment,
        ..Project::default()
    };
    match load(&project, &Folder(folder.clone())) {
        Ok(app) => Outcome::Read(compare::differences(&read, &app, &folder)),
        Err(found) => Outcome::RefusedByKubeleet(found.iter().map(ToString::to_string).collect()),
    }
}

struct Folder(PathBuf);

impl FileSources for Folder {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        std::fs::read_to_string(self.0.join(path)).map_err(|_| SourceError::NotFound)
    }

    fn kind(&self, path: &str) -> PathKind {
        let path = self.0.join(path);
        match (path.is_file(), path.is_dir()) {
            (true, _) => PathKind::File { mode: 0o644 },
            (_, true) => PathKind::Directory { is_empty: std::fs::read_dir(path).unwrap().next().is_none() },
            _ => PathKind::Missing,
        }
    }
}

pub(crate) fn notes(app: &App) -> Vec<String> {
    app.notes.iter().map(|note| note.finding.detail.clone()).collect()
}
