//! Translates what a Compose service reserves by name to `resources`: ids that nodes declare. Containers get
//! no device.

use document::{DocumentNode, Field};

use super::draft::ServiceDraft;
use crate::names::text_at;
use crate::report::NoteKind;

const RESOURCES: &str = "resources";

/// Interpolated variables are texts.
pub(crate) fn resources(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    if !field.value.is_map() {
        return draft.set(RESOURCES, field, field.value.clone());
    }
    for one in field.value.fields() {
        ask_for(one.name, one.value.unquoted(), field, draft);
    }
}

/// Swarm's names may be in upper case.
pub(crate) fn generic_resources(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    for item in field.value.items().into_iter().flatten() {
        let wanted = item.get("discrete_resource_spec");
        let part = |name: &str| wanted?.get(name).filter(|part| !part.is_null());
        match part("kind").and_then(DocumentNode::scalar).zip(part("value")) {
            Some((kind, value)) => ask_for(&kind.to_lowercase(), value.unquoted(), field, draft),
            None => {
                let detail = "deploy.resources.reservations.generic_resources: write {discrete_resource_spec: {kind: gpu, \
                              value: 1}}";
                draft.mistake(item.place(), detail);
            }
        }
    }
}

/// The name is the capability, mostly `gpu`.
pub(crate) fn device_requests(field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    for item in field.value.items().into_iter().flatten() {
        let capabilities = item.get("capabilities").and_then(DocumentNode::items).unwrap_or_default();
        let words: Vec<_> = capabilities.iter().filter_map(DocumentNode::scalar).collect();
        let name = words.iter().find(|word| *word == "gpu").or(words.first());
        let ids = item.get("device_ids").and_then(DocumentNode::items).map(<[DocumentNode]>::len);
        let count = item.get("count").filter(|count| !count.is_null());
        let is_all = |count: &&DocumentNode| matches!(count.scalar().as_deref(), Some("all" | "-1"));
        let count = match (count.filter(|count| !is_all(count)), ids) {
            (Some(count), _) => count.unquoted(),
            (None, Some(ids)) => text_at(&ids.to_string(), item.place()).unquoted(),
            (None, None) => {
                let detail = "deploy.resources.reservations.devices: say how many the pod gets, with `count: 1`; all of a \
                              machine cannot be asked for";
                draft.mistake(item.place(), detail);
                continue;
            }
        };
        let Some(name) = name else {
            draft.mistake(item.place(), "deploy.resources.reservations.devices: needs `capabilities: [gpu]`");
            continue;
        };
        let name = name.to_lowercase();
        let which = if ids.is_some() { ", and which ones is the choice of its node" } else { "" };
        let detail = format!(
            "deploy.resources.reservations.devices: the container gets no device; it finds the ids of {name} that are its \
             own in its environment{which}"
        );
        draft.note(NoteKind::NotHonoured, item.place(), detail);
        ask_for(&name, count, field, draft);
    }
}

fn ask_for(name: &str, count: DocumentNode, field: Field<'_>, draft: &mut ServiceDraft<'_, '_>) {
    let before = draft.document.get(RESOURCES).cloned();
    let mut asked = before.unwrap_or_else(|| DocumentNode::empty_map(field.place));
    let known = asked.get(name).and_then(DocumentNode::scalar);
    if known.is_some_and(|known| Some(known) != count.scalar()) {
        let detail = format!("{name} is asked for twice, with different numbers; keep one");
        return draft.mistake(count.place(), &detail);
    }
    asked.set(name, field.place, count);
    draft.set(RESOURCES, field, asked);
}
