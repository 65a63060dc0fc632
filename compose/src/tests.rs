//! Loads whole files and checks services and findings.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod equal;
mod examples;
mod local_paths;
mod mistakes;
mod reading;
mod schema;

use std::collections::BTreeMap;

use crate::{App, Project, load};

/// `compose.yaml` is loaded.
fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn project(paths: &[&str]) -> Project {
    Project {
        files: paths.iter().map(|path| (*path).to_owned()).collect(),
        folder_name: "app".to_owned(),
        ..Project::default()
    }
}

fn app_of(paths: &[&str], texts: &[(&str, &str)]) -> App {
    load(&project(paths), &files(texts)).unwrap_or_else(|found| panic!("{found:#?}"))
}

fn app(text: &str) -> App {
    app_of(&["compose.yaml"], &[("compose.yaml", text)])
}

fn mistakes(text: &str) -> Vec<String> {
    let found =
        load(&project(&["compose.yaml"]), &files(&[("compose.yaml", text)])).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

fn service(app: &App, name: &str) -> serde_json::Value {
    let service = app.services.iter().find(|service| service.name().as_str() == name);
    serde_json::to_value(service.unwrap()).unwrap()
}

fn notes(app: &App) -> Vec<String> {
    app.notes.iter().map(|note| note.finding.to_string()).collect()
}
