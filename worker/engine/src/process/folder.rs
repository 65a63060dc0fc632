//! A process pod on disk, where later workers find it: `<root>/<node>/<container name>/` has the state, the
//! environment, the log and the working directory.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use daemon::state_file::{IfFound, StateFile};
use model::spec::ContainerSpec;
use serde::{Deserialize, Serialize};

use super::system::{LOG, ProcessIdentity};
use crate::{Container, ContainerRequest, ContainerState, RuntimeError};

/// Content of `pod.json`, without the values of the environment, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<String>,
    pub(super) memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) working_dir: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stop_signal: Option<i32>,
    /// Named `life` in the file since the first version.
    #[serde(rename = "life")]
    pub(super) state: PodState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PodState {
    /// After a crash the process may or may not exist.
    Starting,
    Running(ProcessIdentity),
    Exited(i64),
}

impl Record {
    pub(super) fn starting(request: &ContainerRequest) -> Self {
        let ContainerSpec { entrypoint, command, environment, memory, working_dir, stop_signal, .. } =
            &request.container;
        let labels = request.identity.labels();
        Self {
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            command: [entrypoint.0.as_slice(), command.0.as_slice()].concat(),
            environment: environment.iter().map(|(name, _)| name.to_owned()).collect(),
            memory: memory.map(|memory| memory.bytes()),
            working_dir: working_dir.as_ref().map(PathBuf::from),
            stop_signal: stop_signal.map(|signal| signal.number()),
            state: PodState::Starting,
        }
    }

    pub(super) fn container(&self, handle: &str) -> Option<Container> {
        let state = match self.state {
            PodState::Starting => ContainerState::Created,
            PodState::Running(_) => ContainerState::Running,
            PodState::Exited(code) => ContainerState::Exited { code, out_of_memory: false },
        };
        let get = |key: &str| self.labels.get(key).map(String::as_str);
        Container::from_labels(handle.to_owned(), get, state)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) handle: String,
    pub(super) path: PathBuf,
}

impl Folder {
    /// # Errors
    /// `NotFound` if the handle would leave the root.
    pub(super) fn new(root: &Path, handle: &str) -> Result<Self, RuntimeError> {
        let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['/', '\0']);
        match handle.split_once('/') {
            Some((node, name)) if is_plain(node) && is_plain(name) => {
                Ok(Self { handle: handle.to_owned(), path: root.join(node).join(name) })
            }
            Some(_) | None => Err(RuntimeError::NotFound(format!("process pod {handle:?}"))),
        }
    }

    pub(super) fn node(&self) -> &str {
        self.handle.split_once('/').map_or("", |(node, _)| node)
    }

    pub(super) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(super) fn older_log(&self) -> PathBuf {
        self.path.join("log.1")
    }

    pub(super) fn log_times(&self) -> PathBuf {
        self.path.join("log.times")
    }

    pub(super) fn older_log_times(&self) -> PathBuf {
        self.path.join("log.1.times")
    }

    pub(super) fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.work())
    }

    /// If it is unreadable, nothing was started from it.
    pub(super) fn load(&self) -> Option<Record> {
        let read = self.state_file("pod.json").read().unwrap_or_else(|error| {
            tracing::warn!(pod = self.handle, %error, "the state of a process pod cannot be read");
            None
        });
        serde_json::from_slice(&read?)
            .inspect_err(
                |error| tracing::warn!(pod = self.handle, %error, "the state of a process pod is damaged"),
            )
            .ok()
    }

    pub(super) fn store(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
        self.state_file("pod.json").write(&text)
    }

    pub(super) fn store_environment(&self, environment: &BTreeMap<String, String>) -> io::Result<()> {
        self.state_file("environment.json").save(environment)
    }

    pub(super) fn environment(&self) -> io::Result<BTreeMap<String, String>> {
        let text = std::fs::read(self.path.join("environment.json"))?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    /// The processes end with the machine.
    fn state_file(&self, name: &str) -> StateFile {
        StateFile::new(self.path.join(name)).private().until_reboot()
    }

    pub(super) fn open_log(&self) -> io::Result<File> {
        private_file().append(true).open(self.log())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path).if_found().map(drop)
    }
}

pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_never_leaves_the_root() {
        let root = Path::new("/root/of/pods");
        for bad in ["", "node", "node/", "/name", "../x", "node/..", "node/../x", "node/a/b", "node/.lock"] {
            assert!(matches!(Folder::new(root, bad), Err(RuntimeError::NotFound(_))), "{bad}");
        }
        let folder = Folder::new(root, "node/web-0-12ab").expect("a handle");
        assert_eq!(
            (folder.node(), folder.path.as_path()),
            ("node", Path::new("/root/of/pods/node/web-0-12ab"))
        );
    }
}
