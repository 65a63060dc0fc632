//! Pods of the `process` runtime: what runs, read from the folders they live in, and tidying up.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::invariants::Running;
use crate::leash::Watchdog;

/// Kills what runs below a folder, once the workers are gone that could start it again. Pods have sessions of their own:
/// they outlive their worker, and its process group.
const TIDY: &str = r#"
sleep 1
for file in $(grep -lsz "^KUBELEET_DIR=$0/" /proc/[0-9]*/environ); do
  process=${file#/proc/}
  kill -s KILL "${process%/environ}"
done"#;

/// Where they live. Dropped, whatever still runs from there is killed; and also when this process is killed.
pub struct Processes {
    root: PathBuf,
    #[allow(dead_code, reason = "it watches by being there")]
    watchdog: Watchdog,
}

impl Processes {
    /// Those below this folder.
    pub fn below(root: &Path) -> Self {
        let watchdog = Watchdog::spawn(TIDY, root.as_os_str()).expect("a shell can be started");
        Self { root: root.to_owned(), watchdog }
    }

    /// What runs, as the invariants compare it: one for each pod whose leader lives.
    pub fn running(&self) -> Vec<Running> {
        running_below(&self.root).into_iter().map(|(one, _)| one).collect()
    }

    /// The process id of each running pod's leader, by pod.
    pub fn leaders(&self) -> Vec<(String, i64)> {
        leaders_below(&self.root)
    }

    /// What runs, with its leader.
    pub fn with_leaders(&self) -> Vec<(Running, Pid)> {
        let read = |folder: &Path| {
            let leader = Pid::from_raw(record(folder)?.1.try_into().ok()?)?;
            Some((running(folder)?.0, leader))
        };
        folders_below(&self.root).filter_map(|folder| read(&folder)).collect()
    }
}

/// The process id of each running pod's leader below a folder, by pod.
pub fn leaders_below(root: &Path) -> Vec<(String, i64)> {
    let leader = |folder: &Path| Some((running(folder)?.0.pod, record(folder)?.1));
    folders_below(root).filter_map(|folder| leader(&folder)).collect()
}

/// What runs below a folder, and of each whether it must never run twice.
pub fn running_below(root: &Path) -> Vec<(Running, bool)> {
    folders_below(root).filter_map(|folder| running(&folder)).collect()
}

fn folders_below(root: &Path) -> impl Iterator<Item = PathBuf> {
    let nodes = fs::read_dir(root).into_iter().flatten().flatten();
    nodes
        .flat_map(|node| fs::read_dir(node.path()).into_iter().flatten().flatten())
        .map(|folder| folder.path())
}

fn record(folder: &Path) -> Option<(Value, i64)> {
    let record: Value = serde_json::from_slice(&fs::read(folder.join("pod.json")).ok()?).ok()?;
    let process = record["life"]["running"]["pid"].as_i64()?;
    Some((record, process))
}

fn running(folder: &Path) -> Option<(Running, bool)> {
    let (record, process) = record(folder)?;
    // Its environment names its folder; an id that was used again is somebody else.
    is_from(process, folder).then_some(())?;
    let label = |name: &str| record["labels"][name].as_str().unwrap_or_default().to_owned();
    let stop = label("kubeleet.on-disconnect") == "stop";
    let (pod, assignment, node) =
        (label("kubeleet.pod"), label("kubeleet.assignment"), label("kubeleet.node"));
    Some((Running { pod, assignment, node }, stop))
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    fn pod(folder: &Path) -> Child {
        Command::new("sleep").arg("600").env("KUBELEET_DIR", folder).process_group(0).spawn().unwrap()
    }

    #[test]
    fn when_the_test_is_gone_so_are_its_pods_and_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::below(&folder.path().join("ours"));
        let mut ours = pod(&folder.path().join("ours/node/pod"));
        let mut other = pod(&folder.path().join("others/node/pod"));
        processes.watchdog.let_go();
        let deadline = Instant::now() + Duration::from_secs(20);
        while ours.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
