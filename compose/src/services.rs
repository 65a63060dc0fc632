//! Translates and checks the services of the merged files.

use std::collections::{BTreeMap, BTreeSet};

use document::{DocumentNode, Field, Mistake, Reading};
use model::ids::{AppName, ServiceName};
use model::spec::ServiceInput;

use crate::names::{label, text_at};
use crate::project::Project;
use crate::report::{NoteKind, Report};
use crate::translate::{ServiceDraft, aliases, common_volumes, networks, note_uses, share_volumes};
use crate::values::Declared;
use crate::{check, fields, order};

/// For a service that only has `build`, so that its other mistakes are found too.
const UNBUILT: &str = "unbuilt";

const MAX_NAME: usize = 63;

pub(crate) struct All {
    pub(crate) services: Vec<ServiceInput>,
    pub(crate) all_names: BTreeSet<String>,
    pub(crate) without_ingress: BTreeSet<ServiceName>,
    pub(crate) has_common_volumes: bool,
}

pub(crate) fn all(
    root: &DocumentNode,
    profiles: &BTreeSet<String>,
    project: &Project,
    declared: &mut Declared<'_>,
    report: &mut Report,
) -> All {
    let none = DocumentNode::empty_map(root.place());
    let services = root.get("services").filter(|services| services.is_map()).unwrap_or(&none);
    if services.is_blank() && !report.has_mistakes() {
        report.mistake(
            root.get("services").and_then(DocumentNode::place),
            "there are no services in these files",
        );
    }
    let active = order::active(services, profiles);
    let names = names(services, &active, declared.app, report);
    let order = order::sorted(services, &active, report);
    let mut translated_services = Vec::new();
    for service in order.iter().filter_map(|name| services.field(name)) {
        if !service.value.is_map() {
            let detail =
                format!("{}: a service is a map of fields, not {}", service.name, service.value.kind());
            report.mistake(service.place, detail);
            continue;
        }
        check::effects(service.name, service.value, report);
        let translated = translated(service, &names[service.name], &active, declared, report);
        translated_services.push((service.name, translated));
    }
    let mut documents: Vec<(&str, &mut DocumentNode)> =
        translated_services.iter_mut().map(|(name, translated)| (*name, &mut translated.document)).collect();
    networks::allow_networks(root, &mut documents, &names, &project.allowed, report);
    aliases::name_services(root, &mut documents, &names, report);
    let common = common_volumes(&documents);
    let is_shared =
        |source: &&String| project.kept_volumes.get(*source).copied().unwrap_or(project.shares_volumes);
    let shared: BTreeSet<String> = common.iter().filter(is_shared).cloned().collect();
    share_volumes(&shared, &mut documents);
    note_uses(root, &documents, &common, &shared, report);
    let (mut services, mut without_ingress) = (Vec::new(), BTreeSet::new());
    for (name, translated) in &translated_services {
        let Some(service) = checked(name, translated, report) else { continue };
        if !translated.document.has_field("ingress") {
            without_ingress.insert(service.name().clone());
        }
        services.push(service);
    }
    All {
        services,
        without_ingress,
        all_names: names.into_values().collect(),
        has_common_volumes: !common.is_empty(),
    }
}

/// Full names by those in the file.
fn names(
    services: &DocumentNode,
    active: &BTreeSet<String>,
    app: &AppName,
    report: &mut Report,
) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for service in services.fields() {
        let short = label(service.name);
        if short != service.name && active.contains(service.name) {
            let detail = format!("the service is called {short}: its name becomes a host name");
            report.note(NoteKind::Different, service.place, service.name, detail);
        }
        let whole = format!("{app}-{short}");
        if let Some((other, _)) = names.iter().find(|(_, known)| **known == whole) {
            let detail = format!("{} and {other} would both be called {whole}; rename one", service.name);
            report.mistake(service.place, detail);
        }
        names.insert(service.name.to_owned(), whole);
    }
    names
}

struct Translated {
    document: DocumentNode,
    renamed: Vec<(String, String)>,
}

fn translated(
    service: Field<'_>,
    name: &str,
    active: &BTreeSet<String>,
    declared: &mut Declared<'_>,
    report: &mut Report,
) -> Translated {
    let Declared { app, variables, sources, .. } = *declared;
    let lookup = |name: &str| variables.get(name).cloned();
    let document = DocumentNode::empty_map(service.place);
    let mut draft = ServiceDraft {
        service: service.name,
        document,
        renamed: Vec::new(),
        lookup: &lookup,
        sources,
        declared,
        active,
        report,
    };
    draft.document.set("name", service.place, text_at(name, service.place));
    draft.document.set("app", service.place, text_at(app.as_str(), service.place));
    for (path, translate) in fields::translated() {
        if let Some(field) = find(service.value, path).filter(|field| !field.value.is_null()) {
            translate(field, &mut draft);
        }
    }
    draft.set_defaults(service.place);
    if let Some(build) = service.value.field("build").filter(|_| !draft.document.has_field("image")) {
        let advice = fields::row("services.*.build").map_or("", |row| row.advice);
        draft.document.set("image", build.place, text_at(UNBUILT, build.place));
        draft.report.mistake(build.place, format!("{}: build is not honoured: {advice}", service.name));
    }
    Translated { document: draft.document, renamed: draft.renamed }
}

fn find<'a>(node: &'a DocumentNode, path: &str) -> Option<Field<'a>> {
    match path.split_once('.') {
        Some((name, rest)) => find(node.get(name)?, rest),
        None => node.field(path),
    }
}

fn checked(service: &str, translated: &Translated, report: &mut Report) -> Option<ServiceInput> {
    let Translated { document, renamed } = translated;
    let Reading { value, mistakes } = ServiceInput::check(document);
    for Mistake { place, detail, .. } in mistakes {
        let mut detail = as_written(detail, renamed);
        let name = document.get("name").and_then(DocumentNode::scalar).unwrap_or_default();
        if detail.starts_with("name:") && name.len() > MAX_NAME {
            detail.push_str("; with a shorter name of the app it is shorter: --project-name");
        }
        report.mistake(place.or(document.place()), format!("{service}: {detail}"));
    }
    value
}

fn as_written(detail: String, renamed: &[(String, String)]) -> String {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let found = renamed.iter().rev().find_map(|(name, written)| {
        let rest = detail.strip_prefix(name.as_str()).filter(|rest| is_end(rest))?;
        Some(format!("{written}{rest}"))
    });
    found.unwrap_or(detail)
}
