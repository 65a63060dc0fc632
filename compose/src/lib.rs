//! Compose files as services of kubeleet.
//!
//! [`load`] reads files as the Compose specification describes them, and returns the services that they mean.
//! It touches nothing but what [`FileSources`] reads for it. Every value keeps its place in the user's file,
//! and services are checked as those of any other file are, so that all mistakes are found at once, each at
//! its line.
//!
//! What of the specification is honoured is in one table, `fields::TABLE`; what is not is a [`Note`], never
//! silence.

mod check;
mod env_file;
mod extends;
mod fields;
mod forms;
mod interpolate;
mod load;
mod merge;
mod names;
mod order;
mod page;
mod report;
mod services;
mod source;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod translate;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use common::document::DocumentNode;
use common::ids::{AppName, ServiceName, ValueName};
use common::spec::ServiceInput;
use common::value::ValueKind;

use load::{Loader, Surroundings};
pub use page::markdown;
use report::Report;
pub use report::{ComposeFinding, Note, NoteKind};
pub use source::{FileSources, SourceError};
pub use values::AppValue;
use values::Declared;

/// The names under which a Compose file is looked for in a folder, the preferred one first.
pub const DEFAULT_FILES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// What begins with this is for the author only, wherever it stands.
const EXTENSION: &str = "x-";

/// What is to be read.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// The files, in the order in which a later one overrides an earlier one.
    pub files: Vec<String>,
    /// The name of the folder that the first file is in: without a better name, that of the app.
    pub folder_name: String,
    /// The name of the app, whatever the files say.
    pub name: Option<String>,
    /// The files of variables; without any, `.env` beside the first file.
    pub env_files: Vec<String>,
    /// The profiles that are active besides those of `COMPOSE_PROFILES`.
    pub profiles: Vec<String>,
    /// The variables of the environment.
    pub environment: BTreeMap<String, String>,
    /// Whether the cluster has nodes that share a directory: a named volume of several services is in it
    /// then.
    pub shares_volumes: bool,
}

/// What the files mean.
#[derive(Debug, Clone, PartialEq)]
pub struct App {
    /// Its name.
    pub name: AppName,
    /// The services with an active profile or none, each after those that it depends on.
    pub services: Vec<ServiceInput>,
    /// Those of them whose files do not say what is reached from outside.
    pub without_ingress: BTreeSet<ServiceName>,
    /// The names of all services of the files, also of those that are not active.
    pub all_names: BTreeSet<String>,
    /// The secrets and configs that the services use and the app makes.
    pub values: Vec<AppValue>,
    /// The names of all secrets and configs that the files would make, also of those that are not used.
    pub all_values: BTreeSet<(ValueKind, ValueName)>,
    /// Whether several services have the same named volume.
    pub has_common_volumes: bool,
    /// What the user should know.
    pub notes: Vec<Note>,
}

/// Returns whether a document is that of a Compose file, and not that of a service.
pub fn is_compose(document: &DocumentNode) -> bool {
    document.has_field("services") || document.has_field("include")
}

/// Returns the path of the file that overrides one of [`DEFAULT_FILES`], where it exists.
pub fn override_of(file: &str) -> Option<String> {
    let (start, extension) = file.rsplit_once('.')?;
    Some(format!("{start}.override.{extension}"))
}

/// Reads the files of an app.
///
/// # Errors
/// All mistakes, in the order of the files.
pub fn load(project: &Project, sources: &dyn FileSources) -> Result<App, Vec<ComposeFinding>> {
    let mut report = Report::default();
    match read(project, sources, &mut report) {
        Some(app) if !report.has_mistakes() => Ok(App { notes: report.into_notes(), ..app }),
        _ => Err(report.into_mistakes()),
    }
}

/// Returns the name of the app, whatever else is wrong with its files.
pub fn app_name(project: &Project, sources: &dyn FileSources) -> Option<AppName> {
    let folder = source::folder_of(project.files.first()?).to_owned();
    let mut report = Report::default();
    let mut loader = Loader { sources, report: &mut report };
    let documents = loader.parse(&project.files);
    let variables = loader.variables(&project.env_files, &folder, &project.environment);
    names::of_app(project.name.as_deref(), &project.folder_name, &documents, &variables, loader.report)
}

/// Returns the app without what there is to say about it.
fn read(project: &Project, sources: &dyn FileSources, report: &mut Report) -> Option<App> {
    let folder = source::folder_of(project.files.first()?).to_owned();
    let mut loader = Loader { sources, report };
    let documents = loader.parse(&project.files);
    let mut variables = loader.variables(&project.env_files, &folder, &project.environment);
    let flag = project.name.as_deref();
    let name = names::of_app(flag, &project.folder_name, &documents, &variables, loader.report)?;
    variables.insert(names::NAME_VARIABLE.to_owned(), name.to_string());
    let root = loader.assemble(documents, Surroundings { folder: &folder, variables: &variables }, &[]);
    check::names(&root, report);
    let mut profiles: BTreeSet<String> = project.profiles.iter().cloned().collect();
    let listed = variables.get("COMPOSE_PROFILES").map(String::as_str).unwrap_or_default();
    profiles.extend(listed.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
    let mut declared = Declared::new(&root, &name, &variables, sources);
    let all = services::all(&root, &profiles, project.shares_volumes, &mut declared, report);
    let services::All { services, without_ingress, all_names, has_common_volumes } = all;
    let (values, all_values) = declared.finish();
    let notes = Vec::new();
    Some(App { name, services, without_ingress, all_names, values, all_values, has_common_volumes, notes })
}
