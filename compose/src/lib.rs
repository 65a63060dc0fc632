//! Translates Compose files to kubeleet services.
//!
//! [`load`] reads only the files that [`FileSources`] provides. Every value keeps its place in the user's
//! file, so all mistakes are found at once.
//!
//! A field that is not honoured produces a [`Note`]: see `fields::TABLE`.
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
use values::Declared;

/// In order of preference.
pub const DEFAULT_FILES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

#[derive(Debug, Clone, PartialEq)]
pub struct App {
    pub name: AppName,
    /// Services without a profile or with an active one, each after its dependencies.
    pub services: Vec<ServiceInput>,
    pub without_ingress: BTreeSet<ServiceName>,
    /// Also of inactive services.
    pub all_names: BTreeSet<String>,
    /// Used ones that the app creates.
    pub values: Vec<AppValue>,
    /// Also unused ones.
    pub all_values: BTreeSet<(ValueKind, ValueName)>,
    /// Several services use the same named volume.
    pub has_common_volumes: bool,
    /// With the object that each becomes.
    pub sent_files: BTreeSet<(String, String)>,
    pub notes: Vec<Note>,
}

pub fn is_compose(document: &DocumentNode) -> bool {
    document.has_field("services") || document.has_field("include")
}

pub fn is_version_1(document: &DocumentNode) -> bool {
    let is_service = |field: Field<'_>| field.value.has_field("image") || field.value.has_field("build");
    !is_compose(document) && document.fields().count() > 0 && document.fields().all(is_service)
}

/// In order of preference.
pub const OVERRIDE_FILES: [&str; 4] = [
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

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

/// # Errors
/// In file order.
pub fn load(project: &Project, sources: &dyn FileSources) -> Result<App, Vec<ComposeFinding>> {
    let mut report = Report::default();
    match read(project, sources, &mut report) {
        Some(app) if !report.has_mistakes() => Ok(App { notes: report.into_notes(), ..app }),
        _ => Err(report.into_mistakes()),
    }
}

/// Even if its files have other mistakes.
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
    let all_values = declared.all_values();
    let Declared { made: values, sent_files, .. } = declared;
    Some(App {
        name,
        services: all.services,
        without_ingress: all.without_ingress,
        all_names: all.all_names,
        values,
        all_values,
        has_common_volumes: all.has_common_volumes,
        sent_files,
        notes: Vec::new(),
    })
}
