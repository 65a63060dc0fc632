//! Files beside a Compose file that a service mounts, such as `./nginx.conf:/etc/nginx/nginx.conf`. They are
//! not on the nodes, so each goes with the app as a config: what is in it when the Compose file is applied,
//! and read-only.

use common::document::DocumentNode;

use super::ServiceDraft;
use crate::names::text_at;
use crate::report::NoteKind;
use crate::source::join;

/// What a path begins with that is relative to a Compose file, also after [`complete`].
const MARK: &str = "./";

/// Returns whether a path in a mount is relative to the Compose file.
pub(crate) fn is_beside(path: &str) -> bool {
    path.starts_with('.')
}

/// Completes the paths of mounts that are relative to the file, which is in `folder`.
pub(crate) fn complete(volumes: &mut DocumentNode, folder: &str) {
    let completed = |path: &str| format!("{MARK}{}", join(folder, path));
    for item in volumes.items_mut().into_iter().flatten() {
        let path = if item.is_map() { item.get_mut("source") } else { Some(item) };
        path.into_iter().for_each(|path| {
            path.replace_scalars(&mut |text, _| match text.split_once(':') {
                _ if !is_beside(text) => None,
                Some((path, rest)) => Some(format!("{}:{rest}", completed(path))),
                None => Some(completed(text)),
            });
        });
    }
}

/// Returns the name of the config for a file: that of the app, the service, and the file in the container.
/// The same for each user of the app, wherever the file is.
pub(crate) fn config_name(app: &str, service: &str, target: &str) -> String {
    let file = target.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    format!("{app}-{service}-{file}")
}

/// Returns path and target of each mount of a file beside the Compose file.
pub(crate) fn mounts(volumes: &DocumentNode) -> Vec<(String, String)> {
    let text = |item: &DocumentNode, name: &str| {
        item.get(name).and_then(DocumentNode::scalar).map(|text| text.into_owned())
    };
    let mount = |item: &DocumentNode| match item.scalar() {
        Some(short) => {
            let mut parts = short.split(':').map(str::to_owned);
            parts.next().zip(parts.next())
        }
        None => text(item, "source").zip(text(item, "target")),
    };
    volumes.items().into_iter().flatten().filter_map(mount).filter(|(path, _)| is_beside(path)).collect()
}

/// Makes the file of a mount a config of the app. If it cannot be one, that is noted.
pub(crate) fn add(path: &str, target: &str, item: &DocumentNode, draft: &mut ServiceDraft<'_, '_>) {
    let complete = match path.strip_prefix(MARK).unwrap_or(path) {
        "" => ".",
        complete => complete,
    };
    match draft.declared.file_beside(draft.service, complete, target) {
        Ok(name) => {
            let mut reference = DocumentNode::empty_map(item.place());
            reference.set("source", item.place(), text_at(name.as_str(), item.place()));
            reference.set("target", item.place(), text_at(target, item.place()));
            draft.add_configs(item.place(), vec![reference]);
            let detail = format!(
                "{complete} goes with the app as config {name}: containers read what it is now; apply again when it has changed"
            );
            draft.note(NoteKind::Different, item.place(), detail);
        }
        Err(why) => {
            let detail = format!(
                "volumes is not honoured in part: {complete} is beside this file and not on the nodes, and cannot be a config: \
                 {why}; put it into the image, or write an absolute path of the nodes"
            );
            draft.note(NoteKind::NotHonoured, item.place(), detail);
        }
    }
}
