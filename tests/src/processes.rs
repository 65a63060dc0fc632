//! Pods of the `process` runtime: what runs, read from the folders they live in, and tidying up.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::invariants::Running;

/// Where they live. Dropped, whatever still runs from there is killed.
pub struct Processes {
    root: PathBuf,
}

impl Processes {
    /// Those below this folder.
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// What runs, as the invariants compare it: one for each pod whose leader lives.
    pub fn running(&self) -> Vec<Running> {
        let nodes = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let folders = nodes.flat_map(|node| fs::read_dir(node.path()).into_iter().flatten().flatten());
        folders.filter_map(|folder| running(&folder.path())).collect()
    }

    /// The process id of each running pod's leader, by pod.
    pub fn leaders(&self) -> Vec<(String, i64)> {
        let nodes = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let folders = nodes.flat_map(|node| fs::read_dir(node.path()).into_iter().flatten().flatten());
        folders.filter_map(|folder| Some((running(&folder.path())?.pod, record(&folder.path())?.1))).collect()
    }
}

fn record(folder: &Path) -> Option<(Value, i64)> {
    let record: Value = serde_json::from_slice(&fs::read(folder.join("pod.json")).ok()?).ok()?;
    let process = record["life"]["running"]["pid"].as_i64()?;
    Some((record, process))
}

fn running(folder: &Path) -> Option<Running> {
    let (record, process) = record(folder)?;
    // Its environment names its folder; an id that was used again is somebody else.
    is_from(process, folder).then_some(())?;
    let label = |name: &str| record["labels"][name].as_str().unwrap_or_default().to_owned();
    Some(Running {
        pod: label("kubeleet.pod"),
        assignment: label("kubeleet.assignment"),
        node: label("kubeleet.node"),
    })
}

fn is_from(process: i64, folder: &Path) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let wanted = format!("KUBELEET_DIR={}", folder.display());
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

impl Drop for Processes {
    fn drop(&mut self) {
        let wanted = format!("KUBELEET_DIR={}/", self.root.display());
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let of_this_test =
                environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(wanted.as_bytes()));
            if let Some(pid) = Pid::from_raw(process).filter(|_| of_this_test) {
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }
}
