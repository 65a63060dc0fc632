//! Records which engine has this node's containers, across worker processes.
//!
//! If a worker is pointed to another engine, containers of the former one run on unseen: no replacement
//! starts until a person confirms. Another id at the same address is a new engine, so its containers are
//! gone.

use std::path::PathBuf;

use daemon::state_file::StateFile;
use serde::{Deserialize, Serialize};

const MAX_NAMED: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedEngine {
    id: String,
    address: String,
}

#[derive(Debug)]
pub struct EngineRecord {
    file: StateFile,
    saved: Option<SavedEngine>,
    pods: Vec<String>,
}

impl EngineRecord {
    /// `pods` are the names of the last running pods.
    pub fn read(path: PathBuf, pods: Vec<String>) -> Self {
        let file = StateFile::new(path).creating_directory();
        let saved = file.load().ok().flatten();
        Self { file, saved, pods }
    }

    /// The engine with this node's pods, if it was not at `address`.
    pub(super) fn former(&self, address: &str) -> Option<&str> {
        let saved = self.saved.as_ref().filter(|saved| saved.address != address && !saved.id.is_empty())?;
        (!self.pods.is_empty()).then_some(saved.id.as_str())
    }

    pub(super) fn refusal(&self, id: &str, address: &str) -> Option<String> {
        let saved =
            self.saved.as_ref().filter(|_| self.former(address).is_some_and(|former| former != id))?;
        let count = self.pods.len();
        let named = self.pods.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if count > MAX_NAMED { " …" } else { "" };
        Some(format!(
            "another one does, at {address}: the {count} pods of this node ({named}{more}) are on the one at {}, with the \
             id {}. They are left as they are, and nothing is started in their place. Set DOCKER_HOST back; or stop \
             them there, remove {}, and restart this worker",
            saved.address,
            saved.id,
            self.file.path().display()
        ))
    }

    pub(super) fn save(&self, id: &str, address: &str) {
        let engine = SavedEngine { id: id.to_owned(), address: address.to_owned() };
        if self.saved.as_ref() == Some(&engine) {
            return;
        }
        if let Err(error) = self.file.save(&engine) {
            tracing::debug!(path = %self.file.path().display(), %error, "the engine cannot be noted");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn only_another_engine_at_another_place_than_the_pods_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("n.engine-host");
        let read =
            |pods: &[&str]| EngineRecord::read(path.clone(), pods.iter().map(|&pod| pod.into()).collect());
        assert_eq!(read(&["web-0"]).refusal("A", "unix:///a"), None, "nothing is known");
        read(&[]).save("A", "unix:///a");
        let table = [
            ("the same", &["web-0"][..], "A", "unix:///a", false),
            ("the same, spelled differently", &["web-0"], "A", "/a", false),
            ("set up anew at its place", &["web-0"], "B", "unix:///a", false),
            ("another one, and no pods were left", &[], "B", "unix:///b", false),
            ("another one", &["web-0"], "B", "unix:///b", true),
            ("one without an id, such as Podman", &["web-0"], "", "unix:///b", true),
        ];
        for (name, pods, id, address, is_refused) in table {
            assert_eq!(read(pods).refusal(id, address).is_some(), is_refused, "{name}");
        }
        let why = read(&["a-0", "b-0", "c-0", "d-0", "e-0", "f-0"]).refusal("B", "unix:///b").unwrap();
        for part in ["6 pods", "a-0", "e-0 …", "unix:///a", "DOCKER_HOST", "n.engine-host"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}
