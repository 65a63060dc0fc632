//! Lists pods of the `process` runtime from their folders, and cleans up after a test.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::child_guard::Watchdog;

use crate::invariants::Running;

/// Pods have sessions of their own, and outlive their worker and its process group.
const KILL_PODS: &str = r#"
sleep 1
for file in $(grep -lsz "^KUBELEET_DIR=$0/" /proc/[0-9]*/environ); do
  process=${file#/proc/}
  kill -s KILL "${process%/environ}"
done"#;

/// Its pods end with it.
pub struct Processes {
    root: PathBuf,
    #[allow(dead_code, reason = "it watches by existing")]
    watchdog: Watchdog,
}

impl Processes {
    pub fn below(root: &Path) -> Self {
        let watchdog = Watchdog::spawn(KILL_PODS, root.as_os_str()).expect("a shell can be started");
        Self { root: root.to_owned(), watchdog }
    }

    pub fn running(&self) -> Vec<Running> {
        running_below(&self.root).into_iter().map(|(one, _)| one).collect()
    }

    pub fn leaders(&self) -> Vec<(String, i64)> {
        leaders_below(&self.root)
    }

    pub fn with_leaders(&self) -> Vec<(Running, Pid)> {
        let read = |folder: &Path| {
            let leader = Pid::from_raw(record(folder)?.1.try_into().ok()?)?;
            Some((running(folder)?.0, leader))
        };
        folders_below(&self.root).filter_map(|folder| read(&folder)).collect()
    }
}

pub fn leaders_below(root: &Path) -> Vec<(String, i64)> {
    let leader = |folder: &Path| Some((running(folder)?.0.pod, record(folder)?.1));
    folders_below(root).filter_map(|folder| leader(&folder)).collect()
}

/// True for a pod that must never run twice.
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
    // Another process may have got the process id.
    is_from(process, folder).then_some(())?;
    let label = |name: &str| record["labels"][name].as_str().unwrap_or_default().to_owned();
    let stop = label("kubeleet.on-disconnect") == "stop";
    let (pod, assignment, node) =
        (label("kubeleet.pod"), label("kubeleet.assignment"), label("kubeleet.node"));
    Some((Running { pod, assignment, node }, stop))
}

/// Fields of `/proc/<id>/stat` after the name; the state is the first.
pub fn stat_fields(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    Some(stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect())
}

pub fn cpu_seconds(process: u32) -> f64 {
    let fields = stat_fields(process).unwrap_or_default();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // USER_HZ is 100 on every Linux.
    (ticks(11) + ticks(12)) / 100.0
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
    fn the_pods_of_a_killed_test_and_no_others_are_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::below(&folder.path().join("ours"));
        let mut ours = pod(&folder.path().join("ours/node/pod"));
        let mut other = pod(&folder.path().join("others/node/pod"));
        processes.watchdog.trigger();
        let deadline = Instant::now() + Duration::from_secs(20);
        while ours.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the pod still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
