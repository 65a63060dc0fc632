//! `extends`: a service based on another one, from the same file or another one.

use document::DocumentNode;

use crate::compose_document::{Surroundings, Variables, names_of, text_of};
use crate::loader::Loader;
use crate::merge::{first, merge};
use crate::source::{folder_of, join};

/// Each step uses stack.
const MAX_CHAIN: usize = 64;

struct ServicesFile {
    path: String,
    services: DocumentNode,
    folder: String,
}

pub(crate) fn resolve(
    loader: &mut Loader<'_>,
    document: &mut DocumentNode,
    path: &str,
    around: Surroundings<'_>,
) {
    let Some(services) = document.get("services").cloned() else { return };
    let file = ServicesFile { path: path.to_owned(), services, folder: around.folder.to_owned() };
    for name in names_of(document, "services") {
        let Some(service) = file.services.get(&name).filter(|service| service.has_field("extends")) else {
            continue;
        };
        let way = vec![(file.path.clone(), name.clone())];
        let whole = extended(loader, service.clone(), &file, around.variables, way);
        if let Some(services) = document.get_mut("services") {
            let place = services.field(&name).and_then(|field| field.place);
            services.set(&name, place, whole);
        }
    }
}

fn extended(
    loader: &mut Loader<'_>,
    mut service: DocumentNode,
    file: &ServicesFile,
    variables: &Variables,
    mut way: Vec<(String, String)>,
) -> DocumentNode {
    let Some(extends) = service.get("extends").cloned() else { return service };
    service.remove_field("extends");
    let (target, other) = match extends.is_map() {
        true => (text_of(&extends, "service"), text_of(&extends, "file")),
        false => (extends.scalar().map(|name| name.into_owned()), None),
    };
    let Some(target) = target else {
        loader.report.mistake(extends.place(), "extends: write the name of a service");
        return service;
    };
    let other = other.map(|path| join(&file.folder, &path)).filter(|path| *path != file.path);
    let other = match other {
        Some(path) => match read(loader, &path, &extends, variables) {
            Some(other) => Some(other),
            None => return service,
        },
        None => None,
    };
    let file = other.as_ref().unwrap_or(file);
    let step = (file.path.clone(), target.clone());
    if way.contains(&step) {
        let names: Vec<&str> = way.iter().map(|(_, name)| name.as_str()).collect();
        let detail = format!("extends goes in a circle: {} -> {target}", names.join(" -> "));
        loader.report.mistake(extends.place(), detail);
        return service;
    }
    let Some(base) = file.services.get(&target).cloned() else {
        loader
            .report
            .mistake(extends.place(), format!("extends: there is no service {target:?} in {}", file.path));
        return service;
    };
    if way.len() >= MAX_CHAIN {
        let detail = format!("more than {MAX_CHAIN} services extend each other in a row");
        loader.report.mistake(extends.place(), detail);
        return service;
    }
    way.push(step);
    let base = extended(loader, base, file, variables, way);
    merge(first(&base, crate::fields::SERVICE), &service, crate::fields::SERVICE)
}

fn read(
    loader: &mut Loader<'_>,
    path: &str,
    extends: &DocumentNode,
    variables: &Variables,
) -> Option<ServicesFile> {
    let folder = folder_of(path).to_owned();
    let mut document = loader.parse_one(path, extends.place()).into_iter().next()?.root;
    loader.prepare(&mut document, Surroundings { folder: &folder, variables });
    Some(ServicesFile { path: path.to_owned(), services: document.get("services")?.clone(), folder })
}
