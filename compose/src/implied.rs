//! Implied dependencies: as with Compose, the services of `links`, `volumes_from` and `network_mode:
//! service:…` start before their user.

use document::{DocumentNode, TextPosition};

use crate::compose_document::names_of;

pub(crate) fn add_dependencies(root: &mut DocumentNode) {
    for name in names_of(root, "services") {
        let Some(service) = root.get("services").and_then(|services| services.get(&name)) else { continue };
        let needed = needed(service);
        let Some(service) = root.get_mut("services").and_then(|services| services.get_mut(&name)) else {
            continue;
        };
        for (other, place) in needed {
            if !service.has_value("depends_on") {
                service.set("depends_on", place, DocumentNode::empty_map(place));
            }
            let depends_on = service.get_mut("depends_on").filter(|depends_on| !depends_on.has_field(&other));
            if let Some(depends_on) = depends_on {
                depends_on.set(&other, place, DocumentNode::null(place));
            }
        }
    }
}

fn needed(service: &DocumentNode) -> Vec<(String, Option<TextPosition>)> {
    let items = |field: &str| service.get(field).and_then(DocumentNode::items).unwrap_or_default();
    let before_colon = |node: &DocumentNode| {
        let text = node.scalar()?;
        let name = text.split(':').next().unwrap_or_default();
        Some((name.to_owned(), node.place()))
    };
    let links = items("links").iter().filter_map(before_colon);
    let is_container =
        |node: &&DocumentNode| node.scalar().is_some_and(|text| text.starts_with("container:"));
    let volumes = items("volumes_from").iter().filter(|node| !is_container(node)).filter_map(before_colon);
    let network = service
        .get("network_mode")
        .and_then(|mode| Some((mode.scalar()?.strip_prefix("service:")?.to_owned(), mode.place())));
    links.chain(volumes).chain(network).collect()
}

pub(crate) fn link_names(root: &DocumentNode) -> Vec<(String, String, Option<TextPosition>)> {
    let services = root.get("services").into_iter().flat_map(DocumentNode::fields);
    let links = services.filter_map(|service| service.value.get("links")?.items()).flatten();
    let name = |link: &DocumentNode| {
        let text = link.scalar()?;
        let (service, name) = text.split_once(':').filter(|(service, name)| service != name)?;
        Some((service.to_owned(), name.to_owned(), link.place()))
    };
    links.filter_map(name).collect()
}
