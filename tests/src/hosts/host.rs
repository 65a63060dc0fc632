//! One host: its namespaces, its network interface, its engine.

use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Pid;
use testkit::ChildGuard;

use super::engine;
use super::namespaces::{Namespaces, shell};

pub struct Neighbour {
    namespaces: Namespaces,
    address: String,
}

impl Neighbour {
    pub(super) async fn start(number: u8, net: &str, switch: Pid) -> Self {
        let namespaces = Namespaces::new(&format!("n{number}")).await;
        let address = format!("{net}.{number}");
        plug_in(&namespaces, &address, switch);
        Self { namespaces, address }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Panics if it fails.
    pub fn exec(&self, line: &str) -> Output {
        self.namespaces.run(line)
    }
}

fn plug_in(namespaces: &Namespaces, address: &str, switch: Pid) {
    let (own, far) = (namespaces.init().as_raw_nonzero(), switch.as_raw_nonzero());
    let port = &namespaces.name;
    shell(&format!("ip link add {port} netns {far} type veth peer name eth0 netns {own}"));
    namespaces.run(&format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up"));
    for what in ["up", "master bridge"] {
        set_switch_port(switch, port, what);
    }
}

fn set_switch_port(switch: Pid, port: &str, what: &str) {
    let switch = switch.as_raw_nonzero();
    shell(&format!("nsenter --target {switch} --net ip link set {port} {what}"));
}

pub struct Host {
    namespaces: Namespaces,
    address: String,
    networks: String,
    switch: Pid,
    engine: ChildGuard,
}

impl Host {
    pub(super) async fn start(number: u8, net: &str, switch: Pid) -> Self {
        let namespaces = Namespaces::new(&format!("h{number}")).await;
        let (address, networks) = (format!("{net}.{number}"), engine::networks(number));
        plug_in(&namespaces, &address, switch);
        let engine = engine::start(&namespaces, &networks);
        Self { namespaces, address, networks, switch, engine }
    }

    pub(super) async fn wait_until_engine_is_up(&mut self) {
        engine::wait_until_up(&self.docker_host(), &self.engine, self.namespaces.folder()).await;
    }

    pub fn name(&self) -> &str {
        &self.namespaces.name
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// As `172.21.0.0/16`.
    pub fn networks(&self) -> &str {
        &self.networks
    }

    pub fn docker_host(&self) -> String {
        format!("unix://{}/docker.sock", self.namespaces.folder().display())
    }

    pub fn folder(&self) -> &Path {
        self.namespaces.folder()
    }

    pub fn entry(&self) -> Vec<String> {
        self.namespaces.entry()
    }

    pub fn command(&self, program: &str) -> Command {
        self.namespaces.command(program)
    }

    /// Panics if it fails.
    pub fn exec(&self, line: &str) -> Output {
        self.namespaces.run(line)
    }

    /// Packets are lost without error, and connections stay open.
    pub fn cut(&self) {
        set_switch_port(self.switch, self.name(), "nomaster");
    }

    pub fn join(&self) {
        set_switch_port(self.switch, self.name(), "master bridge");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The engine first, so that it starts nothing more.
        self.engine.kill();
        self.namespaces.kill();
        engine::remove_cgroups(self.namespaces.folder());
    }
}
