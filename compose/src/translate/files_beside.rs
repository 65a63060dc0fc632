//! Local files and directories that a service mounts, which nodes do not have.
//!
//! A file becomes a config or secret with its content at the time of `apply`, an empty directory a volume.
//! Other directories are left out, or refused where the container could write.

use document::DocumentNode;
use model::value::ValueKind;

use crate::compose_document::text_of;
use crate::source::{FileSources, PathKind, join};

/// The beginning of paths relative to a Compose file, also after [`complete`].
const MARK: &str = "./";
const SECRET_WORDS: [&str; 6] = ["secret", "password", "passwd", "token", "credential", "id_rsa"];
const OTHERS_READ: u32 = 0o044;

pub(crate) fn is_beside(path: &str) -> bool {
    path.starts_with('.')
}

pub(super) fn is_in_home(path: &str) -> bool {
    path == "~" || path.starts_with("~/")
}

pub(crate) fn is_local(path: &str) -> bool {
    is_beside(path) || is_in_home(path)
}

pub(crate) fn complete(volumes: &mut DocumentNode, folder: &str) {
    let completed = |path: &str| format!("{MARK}{}", join(folder, path));
    for item in volumes.items_mut().into_iter().flatten() {
        if item.is_map() {
            let is_bind = item.get("type").and_then(DocumentNode::scalar).is_some_and(|kind| kind == "bind");
            // An explicit bind needs no `./`.
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

pub(crate) struct FileBeside {
    pub(crate) path: String,
    pub(crate) target: String,
    /// Made of the app, the service and the file's path in the container: independent of the user and the
    /// local path.
    pub(crate) name: String,
}

pub(crate) fn mounts(app: &str, service: &str, volumes: &DocumentNode) -> Vec<FileBeside> {
    let mount = |item: &DocumentNode| match item.scalar() {
        Some(short) => {
            let mut parts = short.split(':').map(str::to_owned);
            parts.next().zip(parts.next())
        }
        None => text_of(item, "source").zip(text_of(item, "target")),
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

/// A secret if only the owner may read the file or its name suggests one.
pub(crate) fn kind_of(path: &str, sources: &dyn FileSources) -> ValueKind {
    let lower = path.to_ascii_lowercase();
    let is_key = |word: &str| word.ends_with("key") || word.ends_with("keys");
    let is_named_so = SECRET_WORDS.iter().any(|word| lower.contains(word))
        || lower.split(|c: char| !c.is_ascii_alphanumeric()).any(is_key);
    let is_closed = matches!(sources.kind(path), PathKind::File { mode } if mode & OTHERS_READ == 0);
    if is_named_so || is_closed { ValueKind::Secret } else { ValueKind::Config }
}

pub(super) fn on_disk(path: &str) -> &str {
    match path.strip_prefix(MARK).unwrap_or(path) {
        "" => ".",
        path => path,
    }
}
