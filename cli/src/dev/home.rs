//! Files of a `dev` cluster, in a temporary directory or that of `--data`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use daemon::config::RuntimeKind;
use daemon::state_file::{IfFound, StateFile};
use model::ids::NodeName;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::log_file;

/// The format of `dev.json`. A later, incompatible version has a larger number.
const FORMAT: u32 = 1;
const FILE: &str = "dev.json";

pub(super) enum Home {
    Temporary(TempDir),
    Kept(KeptHome),
}

pub(super) struct KeptHome {
    path: PathBuf,
    /// `None` the first time.
    saved: Option<SavedCluster>,
    _lock: File,
}

/// A later `dev` must keep these settings: the file `dev.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedCluster {
    format: u32,
    runtime: String,
    /// Empty until Redis has started once.
    #[serde(default)]
    workers: Vec<NodeName>,
}

impl SavedCluster {
    pub(super) fn new(runtime: RuntimeKind, workers: Vec<NodeName>) -> Self {
        Self { format: FORMAT, runtime: runtime_word(runtime).to_owned(), workers }
    }
}

impl Home {
    /// Fails if the directory has other files, or another `dev` uses it.
    pub(super) fn open(data: Option<&Path>) -> anyhow::Result<Self> {
        match data {
            Some(path) => KeptHome::open(path).map(Self::Kept),
            None => tempfile::Builder::new()
                .prefix("kubeleet-dev-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir()
                .map(Self::Temporary)
                .context("cannot create a temporary directory"),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Temporary(directory) => directory.path(),
            Self::Kept(kept) => &kept.path,
        }
    }

    pub(super) fn kept(&self) -> Option<&KeptHome> {
        match self {
            Self::Temporary(_) => None,
            Self::Kept(kept) => Some(kept),
        }
    }

    pub(super) fn known_workers(&self) -> &[NodeName] {
        let saved = self.kept().and_then(|kept| kept.saved.as_ref());
        saved.map(|saved| saved.workers.as_slice()).unwrap_or_default()
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Temporary(directory) => directory.close().context("cannot remove the temporary directory"),
            Self::Kept(_) => Ok(()),
        }
    }
}

impl KeptHome {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let shown = path.display();
        let unusable = || format!("cannot use {shown} for --data");
        DirBuilder::new().recursive(true).mode(0o700).create(&path).with_context(unusable)?;
        if read(&path.join(FILE))?.is_none() && has_other_files(&path).with_context(unusable)? {
            bail!(
                "{shown} has files and none of `kubeleet dev`: name an empty or a new directory with --data"
            );
        }
        // Redis writes containers' environments there, which may be secret.
        fs::set_permissions(&path, Permissions::from_mode(0o700)).with_context(unusable)?;
        let lock = File::options().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.with_context(unusable)?;
        match lock.try_lock() {
            // Read again: the `dev` that held the lock may have written it since.
            Ok(()) => Ok(Self { saved: read(&path.join(FILE))?, path, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => bail!(
                "another `kubeleet dev` uses {shown}; stop it with Ctrl-C in its terminal first, or name \
                 another directory with --data"
            ),
            Err(fs::TryLockError::Error(error)) => Err(error).with_context(unusable),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Containers cannot move between runtimes, so `wanted` must not differ from the first one.
    pub(super) fn runtime(&self, wanted: Option<RuntimeKind>) -> anyhow::Result<Option<RuntimeKind>> {
        let Some(SavedCluster { runtime: saved, .. }) = &self.saved else { return Ok(wanted) };
        let shown = self.path.display();
        match (saved.parse(), wanted) {
            (Ok(saved), None) => Ok(Some(saved)),
            (Ok(saved), Some(wanted)) if saved == wanted => Ok(Some(saved)),
            (Ok(_), Some(wanted)) => bail!(
                "{shown} has a cluster on the runtime {saved}, not {}: leave out --runtime, or name another \
                 directory with --data",
                runtime_word(wanted)
            ),
            (Err(error), _) => bail!("{}: {error}", self.path.join(FILE).display()),
        }
    }

    pub(super) fn save(&self, cluster: &SavedCluster) -> anyhow::Result<()> {
        let file = StateFile::new(self.path.join(FILE)).private();
        file.save(cluster).with_context(|| format!("cannot write {}", file.path().display()))
    }
}

fn read(path: &Path) -> anyhow::Result<Option<SavedCluster>> {
    let shown = path.display();
    let read = fs::read(path).if_found().with_context(|| format!("cannot read {shown}"))?;
    let Some(text) = read else { return Ok(None) };
    let saved: SavedCluster = serde_json::from_slice(&text)
        .with_context(|| format!("{shown} is not a file of `kubeleet dev`: name another directory"))?;
    if saved.format > FORMAT {
        bail!("{shown} was written by a later version of kubeleet: use that one, or name another directory");
    }
    Ok(Some(saved))
}

fn has_other_files(path: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(path)? {
        // Left by a `dev` that failed at once.
        let name = entry?.file_name();
        if name != "lock" && name != log_file::NAME {
            return Ok(true);
        }
    }
    Ok(false)
}

fn runtime_word(runtime: RuntimeKind) -> &'static str {
    match runtime {
        RuntimeKind::Docker => "docker",
        RuntimeKind::Process => "process",
        RuntimeKind::Sim => "sim",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn kept(path: &Path) -> anyhow::Result<KeptHome> {
        KeptHome::open(path)
    }

    fn error(path: &Path) -> String {
        format!("{:#}", kept(path).err().unwrap())
    }

    #[test]
    fn a_directory_is_used_by_one_dev_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new/data");
        let first = kept(&path).unwrap();
        assert!(error(&path).contains("another `kubeleet dev` uses"));
        drop(first);
        let again = kept(&path).unwrap();
        assert_eq!(again.saved, None);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn workers_and_runtime_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let cluster = SavedCluster::new(RuntimeKind::Sim, vec![NodeName::new("worker7").unwrap()]);
        kept(home.path()).unwrap().save(&cluster).unwrap();
        let again = kept(home.path()).unwrap();
        assert_eq!(again.saved.as_ref(), Some(&cluster));
        for (wanted, expected) in
            [(None, true), (Some(RuntimeKind::Sim), true), (Some(RuntimeKind::Docker), false)]
        {
            let runtime = again.runtime(wanted);
            assert_eq!(
                runtime.is_ok_and(|runtime| runtime == Some(RuntimeKind::Sim)),
                expected,
                "{wanted:?}"
            );
        }
    }

    #[test]
    fn a_directory_of_something_else_is_refused_and_unchanged() {
        let table = [
            ("notes.txt", "mine", "has files and none of `kubeleet dev`"),
            (FILE, "[]", "is not a file of `kubeleet dev`"),
            (FILE, r#"{"format":2,"runtime":"sim"}"#, "later version"),
        ];
        for (name, text, message) in table {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join(name), text).unwrap();
            assert!(error(home.path()).contains(message), "{text}: {}", error(home.path()));
            assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "{text}");
        }
    }
}
