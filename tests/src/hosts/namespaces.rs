//! Namespaces for network, processes and mounts.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Pid;
use tempfile::TempDir;
use testkit::ChildGuard;
use testkit::eventually::eventually_within;

use crate::LIMIT;

/// Reaps the processes that lose their parent.
const INIT: &str = "mount -t tmpfs tmpfs /run && ip link set lo up && touch \"$0/up\" && while :; do sleep 1000 & wait; done";

pub(super) struct Namespaces {
    pub(super) name: String,
    init: Pid,
    // Declared before the folder, which is in use until the processes are gone.
    holder: ChildGuard,
    folder: TempDir,
}

impl Namespaces {
    pub(super) async fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            INIT,
        ]);
        command.arg(folder.path()).stdout(Stdio::null());
        let holder = ChildGuard::spawn(&mut command).expect("unshare can be started");
        let init = eventually_within(LIMIT, &format!("the namespaces of {name} are made"), || async {
            let children = format!("/proc/{0}/task/{0}/children", holder.id());
            let first = fs::read_to_string(children).unwrap_or_default();
            let init = first.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            init.filter(|_| folder.path().join("up").exists()).ok_or("not yet")
        })
        .await;
        Self { name: name.to_owned(), init, folder, holder }
    }

    pub(super) fn kill(&mut self) {
        self.holder.kill();
    }

    pub(super) fn init(&self) -> Pid {
        self.init
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn entry(&self) -> Vec<String> {
        let target = self.init.as_raw_nonzero().to_string();
        ["nsenter", "--target", &target, "--net", "--pid", "--mount"].map(str::to_owned).to_vec()
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let entry = self.entry();
        let mut command = Command::new(&entry[0]);
        command.args(&entry[1..]).arg(program);
        command
    }

    pub(super) fn run(&self, line: &str) -> Output {
        let output = self.command("sh").args(["-c", line]).output().unwrap();
        assert!(
            output.status.success(),
            "{}: {line}: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }
}

pub(super) fn shell(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
