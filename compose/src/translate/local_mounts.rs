//! Translates the local mounts of a service.

use document::DocumentNode;

use super::draft::ServiceDraft;
use super::files_beside::{is_in_home, on_disk};
use crate::names::{label, text_at};
use crate::project::Allowance;
use crate::report::NoteKind;
use crate::source::PathKind;

const MAX_VOLUME_NAME: usize = 63;
const RUNS: u32 = 0o111;

pub(super) struct LocalMount<'a> {
    pub(super) path: &'a str,
    pub(super) target: &'a str,
    pub(super) is_read_only: bool,
    pub(super) item: &'a DocumentNode,
}

/// Returns the volume that replaces a directory.
pub(super) fn add(mount: &LocalMount<'_>, draft: &mut ServiceDraft<'_, '_>) -> Option<DocumentNode> {
    let path = match mount.path.strip_prefix('~') {
        Some(rest) if is_in_home(mount.path) => {
            format!("{}{rest}", (draft.lookup)("HOME").unwrap_or_default())
        }
        _ => on_disk(mount.path).to_owned(),
    };
    match draft.sources.kind(&path) {
        PathKind::File { .. } if is_in_home(mount.path) => {
            leave_out(mount, &path, "it is in your home: put a copy beside the Compose file", draft);
        }
        PathKind::File { mode } => {
            if let Err(why) = add_file(mount, &path, mode, draft) {
                leave_out(mount, &path, &why, draft);
            }
        }
        PathKind::Missing if is_file_name(&path, mount.target) => {
            leave_out(mount, &path, "no such file", draft)
        }
        PathKind::Missing | PathKind::Directory { is_empty: true } if mount.is_read_only => {
            leave_out(mount, &path, "nothing is in it", draft);
        }
        PathKind::Missing | PathKind::Directory { is_empty: true } => {
            return Some(volume(mount, &path, draft));
        }
        PathKind::Directory { is_empty: false } => {
            leave_out(mount, &path, "only single files go with the app, and it is a directory", draft);
        }
        PathKind::Other => leave_out(mount, &path, "it is no file that can be read", draft),
    }
    None
}

/// Both paths of a file have the same extension.
fn is_file_name(path: &str, target: &str) -> bool {
    let ending = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.get(1..)?.rsplit_once('.').map(|(_, ending)| ending.to_owned())
    };
    ending(path).is_some_and(|own| ending(target) == Some(own))
}

fn add_file(
    mount: &LocalMount<'_>,
    path: &str,
    mode: u32,
    draft: &mut ServiceDraft<'_, '_>,
) -> Result<(), String> {
    let LocalMount { target, item, .. } = *mount;
    let (kind, name) = draft.declared.file_beside(draft.service, path, target)?;
    let mut reference = DocumentNode::empty_map(item.place());
    reference.set("source", item.place(), text_at(name.as_str(), item.place()));
    reference.set("target", item.place(), text_at(target, item.place()));
    if mode & RUNS != 0 {
        reference.set("mode", item.place(), text_at("0555", item.place()));
    }
    draft.add_values(kind, item.place(), vec![reference]);
    let detail = format!(
        "{path} goes with the app as {kind} {name}: containers read what it is now, and cannot write it; apply again \
         when it has changed"
    );
    draft.note(NoteKind::Different, item.place(), detail);
    Ok(())
}

/// Named after the path in the container, not the local one.
fn volume(mount: &LocalMount<'_>, path: &str, draft: &mut ServiceDraft<'_, '_>) -> DocumentNode {
    let whole = format!("{}-{}", label(draft.service), label(&mount.target.replace('/', "-")));
    let start = whole.len().saturating_sub(MAX_VOLUME_NAME);
    let name = whole[start..].trim_start_matches('-');
    let detail = format!(
        "{path} becomes volume {name} of the service, which begins empty: nodes do not have this machine's directories"
    );
    draft.note(NoteKind::Different, mount.item.place(), detail);
    if let Some(other) = draft.declared.directory(path, draft.service) {
        let detail = format!("{path} is not shared with {other}: each has a volume of its own");
        draft.note(NoteKind::Different, mount.item.place(), detail);
    }
    mount.item.with_text(format!("{name}:{}", mount.target))
}

/// Refuses a writable mount, because the container's writes would be lost.
fn leave_out(mount: &LocalMount<'_>, path: &str, why: &str, draft: &mut ServiceDraft<'_, '_>) {
    let (place, allowance) = (mount.item.place(), Allowance::LostDirectories);
    let shown = if is_in_home(mount.path) { mount.path } else { path };
    if mount.is_read_only || draft.declared.allowed.contains(&allowance) {
        let lost = if mount.is_read_only { "" } else { "; the container's writes there are lost with it" };
        let detail = format!("volumes is not honoured in part: {shown} is not on the nodes: {why}{lost}");
        return draft.note(NoteKind::NotHonoured, place, detail);
    }
    let detail = format!(
        "{shown} is not on the nodes: {why}. The container's writes to {} would be lost with its next change: write a \
         named volume (data:{}) and copy files into it with `kubeleet cp`, add `:ro` if it is only read, or `--allow {}` \
         to leave it out",
        mount.target,
        mount.target,
        allowance.word()
    );
    draft.mistake(place, &detail);
}
