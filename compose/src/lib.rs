//! Compose files as services of kubeleet.
//!
//! [`load`] reads files as the Compose specification describes them, and returns the services that they mean.
//! It touches nothing but what [`FileSources`] reads for it. Every value keeps its place in the user's file,
//! and services are checked as those of any other file are, so that all mistakes are found at once, each at
//! its line.
//!
//! What of the specification is honoured is in one table, `fields::TABLE`; what is not is a [`Note`], never
//! silence.
//!
//! Tests: tests, oracle

mod assemble;
mod check;
mod compose_document;
mod env_file;
mod extends;
mod fields;
mod forms;
mod implied;
mod interpolate;
mod loader;
mod merge;
mod names;
mod order;
mod page;
mod project;
mod report;
mod scalars;
mod services;
mod source;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod translate;
mod values;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use document::{DocumentNode, Field};
use model::ids::{AppName, ServiceName, ValueName};
use model::spec::ServiceInput;
use model::value::ValueKind;

use compose_document::Surroundings;
use loader::Loader;
use names::NamedApp;
pub use page::markdown;
pub use project::{Allowance, Project};
use report::Report;
pub use report::{ComposeFinding, Note, NoteKind};
pub use source::{FileSources, PathKind, SourceError};
pub use values::AppValue;
use values::{Declared, MadeValues};

/// The names under which a Compose file is looked for in a folder, the preferred one first.
pub const DEFAULT_FILES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

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
    /// The files whose content goes to the cluster, and as what.
    pub sent_files: BTreeSet<(String, String)>,
    /// What the user should know.
    pub notes: Vec<Note>,
}

/// Returns whether a document is that of a Compose file, and not that of a service.
pub fn is_compose(document: &DocumentNode) -> bool {
    document.has_field("services") || document.has_field("include")
}

/// Returns whether a document is a Compose file of version 1: services without `services` around them.
pub fn is_version_1(document: &DocumentNode) -> bool {
    let is_service = |field: Field<'_>| field.value.has_field("image") || field.value.has_field("build");
    !is_compose(document) && document.fields().count() > 0 && document.fields().all(is_service)
}

/// The names of the file that overrides one of [`DEFAULT_FILES`], the preferred one first.
pub const OVERRIDE_FILES: [&str; 4] = [
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

/// Returns the variables of files of variables, as [`load`] would read them.
///
/// # Errors
/// All mistakes.
pub fn variables(
    project: &Project,
    sources: &dyn FileSources,
) -> Result<BTreeMap<String, String>, Vec<ComposeFinding>> {
    let mut report = Report::default();
    let folder = folder(project);
    let variables =
        Loader::new(sources, &mut report).variables(&project.env_files, &folder, &project.environment);
    if report.has_mistakes() { Err(report.into_mistakes()) } else { Ok(variables) }
}

fn folder(project: &Project) -> String {
    let first = project.files.first().map_or("", String::as_str);
    project.directory.clone().unwrap_or_else(|| source::folder_of(first).to_owned())
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
    let folder = folder(project);
    let mut report = Report::default();
    let mut loader = Loader::new(sources, &mut report);
    let documents = loader.parse(&project.files);
    let variables = loader.variables(&project.env_files, &folder, &project.environment);
    let flag = project.name.as_deref();
    let named = names::of_app(flag, &project.folder_name, &documents, &variables, loader.report);
    named.map(|named| named.name)
}

/// Returns the app without what there is to say about it.
fn read(project: &Project, sources: &dyn FileSources, report: &mut Report) -> Option<App> {
    let folder = folder(project);
    let mut loader = Loader::new(sources, report);
    let documents = loader.parse(&project.files);
    let mut variables = loader.variables(&project.env_files, &folder, &project.environment);
    let flag = project.name.as_deref();
    let named = names::of_app(flag, &project.folder_name, &documents, &variables, loader.report)?;
    let NamedApp { name, written } = named;
    variables.insert(names::NAME_VARIABLE.to_owned(), written);
    let mut root = loader.assemble(documents, Surroundings { folder: &folder, variables: &variables }, &[]);
    scalars::write_booleans(&mut root);
    check::names(&root, report);
    implied::add_dependencies(&mut root);
    let mut profiles: BTreeSet<String> = project.profiles.iter().cloned().collect();
    let listed = variables.get("COMPOSE_PROFILES").map(String::as_str).unwrap_or_default();
    profiles.extend(listed.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
    let mut declared =
        Declared::new(&root, &name, &variables, sources, &project.allowed, fields::advice_if_not_honoured);
    let all = services::all(&root, &profiles, project, &mut declared, report);
    let services::All { services, without_ingress, all_names, has_common_volumes } = all;
    let MadeValues { values, all_values, sent_files } = declared.finish();
    let notes = Vec::new();
    Some(App {
        name,
        services,
        without_ingress,
        all_names,
        values,
        all_values,
        has_common_volumes,
        sent_files,
        notes,
    })
}
