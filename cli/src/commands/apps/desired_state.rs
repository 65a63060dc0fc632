//! Desired state from files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use api_types::NodeView;
use client::{Client, found};
use compose::{AppValue, ComposeFinding, NoteKind};
use model::ids::{AppName, ServiceName, ValueName};
use model::spec::{ServiceInput, VolumeKind};
use model::value::ValueKind;
use output::stderr;

use super::compose_sources::ComposeSources;
use super::file_args::{self, ComposeArgs, FileArgs};
use super::services_in_text::{self, display_name};
use super::write_order;
use crate::commands::error::{CommandError, CommandResult};

const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Default)]
pub(crate) struct Desired {
    /// In the order of application.
    pub(crate) services: Vec<ServiceInput>,
    pub(crate) app: Option<DesiredApp>,
    pub(crate) values: Vec<AppValue>,
    /// Services may lose access to volumes with data.
    pub(crate) leaves_volumes: bool,
    notes: Vec<compose::Note>,
    /// Local files, with the object each becomes.
    sent_files: BTreeSet<(String, String)>,
    /// Their Compose files define no ingress.
    without_ingress: BTreeSet<ServiceName>,
}

pub(crate) struct DesiredApp {
    pub(crate) name: AppName,
    pub(crate) all_names: BTreeSet<String>,
    pub(crate) all_values: BTreeSet<(ValueKind, ValueName)>,
}

impl Desired {
    /// A Compose file without an ingress keeps the stored one, which is noted.
    pub(crate) fn over(&self, input: &ServiceInput, stored: Option<&ServiceInput>) -> ServiceInput {
        let mut input = input.clone();
        let kept = stored.map_or(&[][..], |stored| &stored.fields.ingress);
        if !kept.is_empty() && self.without_ingress.contains(input.name()) {
            stderr::note(&format!(
                "service/{}: keeps its ingress, which the Compose files do not have: write it below `x-kubeleet` \
                 of the service, or `ingress: []` there to remove it",
                input.name()
            ));
            input.fields.ingress = kept.to_vec();
        }
        input
    }

    /// Without its dependencies on services of these files: their stored state may be about to change.
    pub(crate) fn judged_alone(&self, service: &ServiceInput) -> ServiceInput {
        let mut alone = service.clone();
        let is_here = |name: &str| self.services.iter().any(|service| service.name().as_str() == name);
        alone.fields.depends_on.0.retain(|name, _| !is_here(name));
        alone
    }

    pub(crate) fn print_notes(&self) {
        for note in &self.notes {
            stderr::note(&format!("note: {}", note.finding));
        }
        if !self.sent_files.is_empty() {
            let sent = self.sent_files.iter().map(|(path, becomes)| format!("{path} ({becomes})"));
            let sent: Vec<String> = sent.collect();
            stderr::note(&format!("files that go to the cluster: {}", sent.join(", ")));
        }
    }
}

pub(crate) async fn read(args: &FileArgs, client: &Client) -> CommandResult<Desired> {
    if !args.files.is_empty() {
        return read_files(&args.files, &args.compose, Some(client)).await;
    }
    let files = file_args::of_this_folder(&args.compose)?;
    stderr::note(&format!("reading {}", files.join(" and ")));
    read_files(&files, &args.compose, Some(client)).await
}

/// Without `client`, the state of the cluster does not affect the meaning of the files.
pub(crate) async fn read_files(
    files: &[String],
    compose: &ComposeArgs,
    client: Option<&Client>,
) -> CommandResult<Desired> {
    let (mut services, mut mistakes) = (Vec::new(), Vec::new());
    let mut texts = BTreeMap::new();
    let mut compose_files = Vec::new();
    for file in file_args::expand(files)? {
        let text = read_text(&file)?;
        let documents = document::yaml(&text).0;
        if documents.first().is_some_and(compose::is_version_1) {
            mistakes.push(format!(
                "{}:1:1: this is a Compose file of version 1: write `services:` above its services, and indent them",
                display_name(&file)
            ));
            continue;
        }
        if documents.first().is_some_and(compose::is_compose) {
            compose_files.push(file.clone());
            texts.insert(file, text);
            continue;
        }
        match services_in_text::parse(&file, &text) {
            Ok(parsed) => services.extend(parsed),
            Err(found) => mistakes.extend(found),
        }
    }
    // An unparsable file may be a Compose file.
    if compose_files.is_empty() && compose.is_set() && mistakes.is_empty() {
        let detail = "--profile, --env-file, --project-name, --project-directory and --allow are for Compose files, and \
                      none of these is one";
        return Err(CommandError::Usage(detail.to_owned()));
    }
    for folder in files.iter().filter(|file| *file != "-" && Path::new(file).is_dir()) {
        put_in_order(folder, &mut compose_files)?;
    }
    let mut desired = Desired { services, ..Desired::default() };
    if !compose_files.is_empty() {
        let mut project = compose.project(compose_files);
        let texts = ComposeSources::new(&project, compose.allows_outside_files(), texts);
        let mut loaded = compose::load(&project, &texts);
        if let (Ok(app), Some(client)) = (&loaded, client)
            && app.has_common_volumes
        {
            project.shares_volumes = has_shared_directory(client).await?;
            project.kept_volumes = kept_volumes(app, client).await?;
            loaded = compose::load(&project, &texts);
        }
        match loaded {
            Ok(app) => desired.add(app),
            Err(found) => mistakes.extend(found.iter().map(ComposeFinding::to_string)),
        }
    }
    if compose.strict {
        mistakes.extend(desired.differences());
    }
    if !mistakes.is_empty() {
        return Err(CommandError::Usage(mistakes.join("\n")));
    }
    check_names(&desired.services)?;
    desired.services = write_order::in_order_of_need(desired.services);
    Ok(desired)
}

/// Also if its nodes are down: a file's meaning must not depend on that.
async fn has_shared_directory(client: &Client) -> CommandResult<bool> {
    Ok(client.list::<NodeView>("node").await?.iter().any(|node| node.shared_volumes.is_some()))
}

/// True if shared. A persistent one stays so: a shared one in its place would be empty.
async fn kept_volumes(app: &compose::App, client: &Client) -> CommandResult<BTreeMap<String, bool>> {
    let mut kept = BTreeMap::new();
    for service in &app.services {
        let Some(stored) = found(client.service(service.name().as_str()).await)? else { continue };
        for volume in stored.pod.containers.iter().flat_map(|container| &container.volumes) {
            let Some(source) = volume.source.clone() else { continue };
            match volume.kind {
                VolumeKind::Persistent => kept.insert(source, false),
                VolumeKind::Shared => Some(*kept.entry(source).or_insert(true)),
                VolumeKind::Local | VolumeKind::Tmpfs | VolumeKind::Bind => None,
            };
        }
    }
    Ok(kept)
}

/// Override order differs from the order of names.
fn put_in_order(folder: &str, files: &mut Vec<String>) -> CommandResult<()> {
    let is_inside = |file: &String| Path::new(file).parent() == Some(Path::new(folder));
    let found: Vec<String> = files.iter().filter(|file| is_inside(file)).cloned().collect();
    let path = |name: &str| Path::new(folder).join(name).display().to_string();
    let usual = file_args::default_files("", &|name| found.contains(&path(name)));
    let usual: Vec<String> = usual.iter().flatten().map(|name| path(name)).collect();
    if found.len() > 1 && usual.len() != found.len() {
        let names = found.join(", ");
        return Err(CommandError::Usage(format!(
            "{folder} has several Compose files: {names}; name those to merge with -f, in their order"
        )));
    }
    if found.len() > 1 {
        files.retain(|file| !is_inside(file));
        files.extend(usual);
    }
    Ok(())
}

impl Desired {
    fn add(&mut self, app: compose::App) {
        self.services.extend(app.services);
        self.without_ingress = app.without_ingress;
        self.app = Some(DesiredApp { name: app.name, all_names: app.all_names, all_values: app.all_values });
        self.values = app.values;
        self.notes = app.notes;
        self.sent_files = app.sent_files;
    }

    fn differences(&self) -> impl Iterator<Item = String> {
        let is_difference =
            |note: &&compose::Note| matches!(note.kind, NoteKind::NotHonoured | NoteKind::Different);
        let notes = self.notes.iter().filter(is_difference);
        notes.map(|note| note.finding.to_string())
    }
}

fn read_text(file: &str) -> CommandResult<String> {
    let mut text = String::new();
    let result = match file {
        "-" => std::io::stdin().take(MAX_FILE_BYTES + 1).read_to_string(&mut text),
        path => {
            std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        }
    };
    match result {
        Ok(read) if read as u64 > MAX_FILE_BYTES => {
            let detail = format!("{} has more than {} MiB", display_name(file), MAX_FILE_BYTES >> 20);
            Err(CommandError::Usage(detail))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(CommandError::unreadable(display_name(file), &error)),
    }
}

fn check_names(services: &[ServiceInput]) -> CommandResult<()> {
    let mut seen = BTreeSet::new();
    match services.iter().find(|service| !seen.insert(service.name().as_str())) {
        None => Ok(()),
        Some(service) => Err(CommandError::Usage(format!(
            "service {} is defined twice in these files; nothing was applied",
            service.name()
        ))),
    }
}

pub(crate) fn app_of_this_folder() -> Option<AppName> {
    let args = ComposeArgs::default();
    let project = args.project(file_args::of_this_folder(&args).ok()?);
    let sources = ComposeSources::new(&project, args.allows_outside_files(), BTreeMap::new());
    compose::app_name(&project, &sources)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_service_must_not_be_defined_twice() {
        let services = services_in_text::parse("-", "name: a\nimage: x\n---\nname: a\nimage: y\n").unwrap();
        assert!(check_names(&services).unwrap_err().to_string().contains("twice"));
    }

    #[tokio::test]
    async fn of_a_folder_the_override_comes_second_and_others_must_be_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, image: &str| {
            std::fs::write(folder.path().join(name), format!("services: {{web: {{image: {image}}}}}\n"))
                .unwrap();
        };
        write("compose.yaml", "a");
        write("compose.override.yaml", "b");
        let files = [folder.path().display().to_string()];
        let named = ComposeArgs { project_name: Some("shop".to_owned()), ..ComposeArgs::default() };
        let desired = read_files(&files, &named, None).await.unwrap();
        assert_eq!(desired.services[0].pod.image(), "b");
        write("other.yaml", "c");
        let error = read_files(&files, &named, None).await.err().unwrap().to_string();
        assert!(error.contains("several Compose files"), "{error}");
    }

    #[tokio::test]
    async fn plain_services_and_the_app_of_compose_files_are_read_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("compose.yaml"), "name: shop\nservices:\n  web: {image: a, platform: x}\n")
            .unwrap();
        std::fs::write(path("more.yaml"), "services:\n  web: {user: x}\n  db: {image: b}\n").unwrap();
        std::fs::write(path("plain.yaml"), "name: other\nimage: x\n").unwrap();
        let files = [path("compose.yaml"), path("plain.yaml"), path("more.yaml")];
        let desired = read_files(&files, &ComposeArgs::default(), None).await.unwrap();
        let names: Vec<_> = desired.services.iter().map(|service| service.name().as_str()).collect();
        assert_eq!(names, ["other", "shop-web", "shop-db"]);
        assert_eq!(desired.app.unwrap().name.as_str(), "shop");
        assert_eq!(desired.notes.len(), 1);
        let strict = ComposeArgs { strict: true, ..ComposeArgs::default() };
        let error = read_files(&files, &strict, None).await.err().unwrap().to_string();
        assert!(error.contains("compose.yaml:3:19: web: platform is not honoured"), "{error}");
    }

    #[tokio::test]
    async fn strict_refuses_every_difference_and_no_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("hint.yaml"), "name: a\nservices: {web: {image: x, command: a; b}}\n").unwrap();
        std::fs::write(path("port.yaml"), "name: a\nservices: {web: {image: x, ports: ['80']}}\n").unwrap();
        let strict = ComposeArgs { strict: true, ..ComposeArgs::default() };
        assert!(read_files(&[path("hint.yaml")], &strict, None).await.is_ok());
        let error = read_files(&[path("port.yaml")], &strict, None).await.err().unwrap().to_string();
        assert!(error.contains("loopback only"), "{error}");
    }

    #[tokio::test]
    async fn what_cannot_be_parsed_is_said_first_and_version_1_has_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let named = ComposeArgs { project_name: Some("shop".to_owned()), ..ComposeArgs::default() };
        for (text, expected) in [
            ("services:\n\tweb: {}\n", ":2:1: a tab indents this line"),
            ("web:\n  image: x\ndb: {build: .}\n", ":1:1: this is a Compose file of version 1"),
        ] {
            std::fs::write(path("compose.yaml"), text).unwrap();
            let error = read_files(&[path("compose.yaml")], &named, None).await.err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
