//! One host: its namespaces, its cable, its engine.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Pid;
use tempfile::TempDir;

use super::engine;
use crate::eventually;
use crate::leash::Leashed;
use crate::wait::LIMIT;

/// Collects orphans, which is what a first process is for.
const INIT: &str = "mount -t tmpfs tmpfs /run && ip link set lo up && touch \"$0/up\" && while :; do sleep 1000 & wait; done";

/// Namespaces for network, processes and mounts, and the first process in them. Dropped, all in them is killed.
pub(super) struct Space {
    name: String,
    init: Pid,
    // Before the folder, which is in use until it is gone.
    holder: Leashed,
    folder: TempDir,
}

impl Space {
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
        let holder = Leashed::spawn(&mut command).expect("unshare can be started");
        let init = eventually(LIMIT, &format!("{name} is made"), || async {
            let children = format!("/proc/{0}/task/{0}/children", holder.id());
            let first = fs::read_to_string(children).unwrap_or_default();
            let init = first.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            init.filter(|_| folder.path().join("up").exists()).ok_or("not yet")
        })
        .await;
        Self { name: name.to_owned(), init, folder, holder }
    }

    fn end(&mut self) {
        self.holder.kill();
    }

    pub(super) fn init(&self) -> Pid {
        self.init
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The words that go before a command to have it run there.
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

    /// A line of shell there.
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

/// A host with an engine.
pub struct Host {
    space: Space,
    address: String,
    port: String,
    switch: Pid,
    engine: Leashed,
}

impl Host {
    pub(super) async fn start(number: u8, net: &str, switch: Pid) -> Self {
        let space = Space::new(&format!("h{number}")).await;
        let (address, port) = (format!("{net}.{number}"), format!("h{number}"));
        let (own, far) = (space.init().as_raw_nonzero(), switch.as_raw_nonzero());
        super::shell(&format!("ip link add {port} netns {far} type veth peer name eth0 netns {own}"));
        space.run(&format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up"));
        let engine = engine::start(&space);
        let host = Self { space, address, port, switch, engine };
        host.at_the_switch("up");
        host.join();
        host
    }

    pub(super) async fn engine_is_up(&mut self) {
        engine::is_up(&self.docker_host(), &self.engine, self.space.folder()).await;
    }

    /// What it is called: `h1` …
    pub fn name(&self) -> &str {
        &self.space.name
    }

    /// Its address on the switch.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// `DOCKER_HOST` of its engine, good on the whole machine.
    pub fn docker_host(&self) -> String {
        format!("unix://{}/docker.sock", self.space.folder().display())
    }

    /// Its folder, the same in it and outside.
    pub fn folder(&self) -> &Path {
        self.space.folder()
    }

    /// The words that go before a command to have it run there.
    pub fn entry(&self) -> Vec<String> {
        self.space.entry()
    }

    /// A command that runs there.
    pub fn command(&self, program: &str) -> Command {
        self.space.command(program)
    }

    /// A line of shell there, with its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn exec(&self, line: &str) -> Output {
        self.space.run(line)
    }

    /// Its cable leads nowhere: what it sends vanishes, and nobody is told.
    pub fn cut(&self) {
        self.at_the_switch("nomaster");
    }

    /// Its cable is in the switch.
    pub fn join(&self) {
        self.at_the_switch("master bridge");
    }

    fn at_the_switch(&self, what: &str) {
        let (switch, port) = (self.switch.as_raw_nonzero(), &self.port);
        super::shell(&format!("nsenter --target {switch} --net ip link set {port} {what}"));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The engine first, so that it does not start anything; what is in the host goes with its first process.
        self.engine.kill();
        self.space.end();
        engine::tidy(self.space.folder());
    }
}
