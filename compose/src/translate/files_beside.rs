//! Files and directories beside a Compose file, or in the user's home, that a service mounts, such as
//! `./nginx.conf:/etc/nginx/nginx.conf`. They are not on the nodes. A file goes with the app as a config or a
//! secret: what is in it when the Compose file is applied, and read-only. A directory without files becomes a
//! volume, as what the container writes there is to stay. Any other directory is left out, which is refused
//! where the container could write to it.

use common::document::DocumentNode;
use common::value::ValueKind;

use super::ServiceDraft;
use crate::Allowance;
use crate::names::{label, text_at};
use crate::report::NoteKind;
use crate::source::{FileSources, PathKind, join};

/// What a path begins with that is relative to a Compose file, also after [`complete`].
const MARK: &str = "./";
/// The longest name of a volume.
const MAX_VOLUME_NAME: usize = 63;
/// Words in the path of a file that make its content a secret.
const SECRET_WORDS: [&str; 6] = ["secret", "password", "passwd", "token", "credential", "id_rsa"];
/// The bits of a mode that let others than the owner read.
const OTHERS_READ: u32 = 0o044;
/// The bits of a mode that let a file run.
const RUNS: u32 = 0o111;

/// Returns whether a path in a mount is relative to the Compose file.
pub(crate) fn is_beside(path: &str) -> bool {
    path.starts_with('.')
}

/// Returns whether a path in a mount is in the home of the user.
fn is_in_home(path: &str) -> bool {
    path == "~" || path.starts_with("~/")
}

/// Returns whether a path in a mount is on this machine, and not on the nodes.
pub(crate) fn is_local(path: &str) -> bool {
    is_beside(path) || is_in_home(path)
}

/// Completes the paths of mounts that are relative to the file, which is in `folder`.
pub(crate) fn complete(volumes: &mut DocumentNode, folder: &str) {
    let completed = |path: &str| format!("{MARK}{}", join(folder, path));
    for item in volumes.items_mut().into_iter().flatten() {
        if item.is_map() {
            let is_bind = item.get("type").and_then(DocumentNode::scalar).is_some_and(|kind| kind == "bind");
            // With its type a bind needs no `./`.
            let is_relative =
                |path: &str| is_beside(path) || (is_bind && !path.starts_with(['/', '~', '\\']));
            let Some(source) = item.get_mut("source") else { continue };
            source.replace_scalars(&mut |path, _| {
                Some(completed(path))
                    .filter(|_| is_relative(path) && !path.is_empty() && !path.contains(":\\"))
            });
            continue;
        }
        item.replace_scalars(&mut |text, _| match text.split_once(':') {
            _ if !is_beside(text) => None,
            Some((path, rest)) => Some(format!("{}:{rest}", completed(path))),
            None => Some(completed(text)),
        });
    }
}

/// A file that a service mounts, and what it becomes.
pub(crate) struct FileBeside {
    pub(crate) path: String,
    pub(crate) target: String,
    /// Its name as a config or secret: that of the app, the service, and the file in the container. The same
    /// for each user of the app, wherever the file is.
    pub(crate) name: String,
}

/// Returns the mounts of a service that are relative to the Compose file.
pub(crate) fn mounts(app: &str, service: &str, volumes: &DocumentNode) -> Vec<FileBeside> {
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
    let mut files: Vec<FileBeside> = Vec::new();
    let beside = volumes.items().into_iter().flatten().filter_map(mount);
    for (path, target) in beside.filter(|(path, _)| is_beside(path)) {
        let whole = target.trim_matches('/');
        let file = whole.rsplit('/').next().unwrap_or_default();
        let short = format!("{app}-{service}-{file}");
        let name = match files.iter().any(|known| known.name == short) {
            true => format!("{app}-{service}-{}", whole.replace('/', "-")),
            false => short,
        };
        files.push(FileBeside { path: on_disk(&path).to_owned(), target, name });
    }
    files
}

/// Returns whether the content of a file is a config, or a secret: what only its owner may read, or is called
/// so.
pub(crate) fn kind_of(path: &str, sources: &dyn FileSources) -> ValueKind {
    let lower = path.to_ascii_lowercase();
    let is_key = |word: &str| word.ends_with("key") || word.ends_with("keys");
    let is_named_so = SECRET_WORDS.iter().any(|word| lower.contains(word))
        || lower.split(|c: char| !c.is_ascii_alphanumeric()).any(is_key);
    let is_closed = matches!(sources.kind(path), PathKind::File { mode } if mode & OTHERS_READ == 0);
    if is_named_so || is_closed { ValueKind::Secret } else { ValueKind::Config }
}

/// Returns a path as [`FileSources`] knows it.
fn on_disk(path: &str) -> &str {
    match path.strip_prefix(MARK).unwrap_or(path) {
        "" => ".",
        path => path,
    }
}

/// A mount of a path on this machine.
pub(super) struct LocalMount<'a> {
    pub(super) path: &'a str,
    pub(super) target: &'a str,
    pub(super) is_read_only: bool,
    pub(super) item: &'a DocumentNode,
}

/// Makes a file a config or a secret of the app. Returns the volume that a directory becomes.
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

/// Returns whether a file is meant, and not a directory: both paths end alike.
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

/// Returns the volume that a directory without files becomes. Its name is that of the place in the container,
/// which is the same wherever the Compose file is.
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

/// Leaves out a mount. Refuses that where the container can write: what it writes would be lost with it.
fn leave_out(mount: &LocalMount<'_>, path: &str, why: &str, draft: &mut ServiceDraft<'_, '_>) {
    let (place, allowance) = (mount.item.place(), Allowance::LostDirectories);
    let shown = if is_in_home(mount.path) { mount.path } else { path };
    if mount.is_read_only || draft.declared.allowed.contains(&allowance) {
        let lost = if mount.is_read_only { "" } else { "; what the container writes there is lost with it" };
        let detail = format!("volumes is not honoured in part: {shown} is not on the nodes: {why}{lost}");
        return draft.note(NoteKind::NotHonoured, place, detail);
    }
    let detail = format!(
        "{shown} is not on the nodes: {why}. What the container writes to {} would be lost with its next change: write a \
         named volume (data:{}) and copy files into it with `kubeleet cp`, add `:ro` if it is only read, or `--allow {}` \
         to leave it out",
        mount.target,
        mount.target,
        allowance.word()
    );
    draft.mistake(place, &detail);
}
