//! The API token of a `dev` cluster, in a file that the same user's commands find.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use client::ApiUrl;
use daemon::state_file::StateFile;
use model::value::secret::Secret;

pub(crate) struct SavedToken(PathBuf);

impl SavedToken {
    /// Only this user can read it. Fails if others can write to the folder.
    pub(crate) fn save(port: u16, token: &Secret) -> io::Result<Self> {
        Self::save_in(&folder(), port, token)
    }

    fn save_in(folder: &Path, port: u16, token: &Secret) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if !is_private(folder) {
            let problem = format!("{} is not a folder of this user alone: remove it", folder.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, problem));
        }
        let path = file(folder, port);
        // It may exist from a killed `dev`.
        StateFile::new(&path).private().write(token.expose().as_bytes())?;
        Ok(Self(path))
    }
}

impl Drop for SavedToken {
    fn drop(&mut self) {
        let _is_gone = fs::remove_file(&self.0);
        // Only if it is empty.
        let _is_removed = self.0.parent().map(fs::remove_dir);
    }
}

pub(crate) fn saved_for(api: &ApiUrl) -> Option<Secret> {
    if !api.is_loopback() {
        return None;
    }
    read_in(&folder(), api.port()?)
}

fn read_in(folder: &Path, port: u16) -> Option<Secret> {
    // Another user could have written files in that user's own folder.
    let text = is_private(folder).then(|| fs::read_to_string(file(folder, port)).ok()).flatten()?;
    Some(Secret::new(text.trim())).filter(|token| !token.expose().is_empty())
}

fn file(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("api-{port}.token"))
}

fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(runtime) => runtime.join("kubeleet"),
        None => std::env::temp_dir().join(format!("kubeleet-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Also refuses links.
fn is_private(folder: &Path) -> bool {
    let owner = rustix::process::geteuid().as_raw();
    let is_own = |found: fs::Metadata| found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0;
    fs::symlink_metadata(folder).is_ok_and(is_own)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn token(folder: &Path) -> Option<String> {
        read_in(folder, 7070).map(|token| token.expose().to_owned())
    }

    #[test]
    fn a_token_is_its_users_only_and_goes_with_the_cluster() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("kubeleet");
        assert_eq!(token(&folder), None);
        let first = SavedToken::save_in(&folder, 7070, &Secret::new("first")).unwrap();
        std::mem::forget(first);
        let saved = SavedToken::save_in(&folder, 7070, &Secret::new("second")).unwrap();
        assert_eq!(token(&folder).as_deref(), Some("second"));
        assert_eq!(fs::metadata(file(&folder, 7070)).unwrap().mode() & 0o777, 0o600);
        drop(saved);
        assert!(!folder.exists(), "nothing is left");
    }

    #[test]
    fn a_folder_of_others_is_neither_written_nor_read() {
        let home = tempfile::tempdir().unwrap();
        let (open, link, private) =
            (home.path().join("open"), home.path().join("link"), home.path().join("private"));
        for folder in [&open, &private] {
            fs::create_dir(folder).unwrap();
            fs::write(file(folder, 7070), "planted").unwrap();
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&private, &link).unwrap();
        for folder in [&open, &link] {
            assert_eq!(token(folder), None, "{folder:?}");
            let error = SavedToken::save_in(folder, 7070, &Secret::new("mine")).err().unwrap();
            assert!(error.to_string().contains("is not a folder of this user alone"), "{error}");
        }
        assert_eq!(token(&private).as_deref(), Some("planted"));
    }
}
