//! Hosts on a switch, each with its own namespaces, Docker engine and processes.
//!
//! A host is the first process of its own pid namespace: everything in it ends with it. `/sys` stays the
//! machine's, because the engines need its control groups.

mod cluster;
mod engine;
mod host;
mod namespaces;

use std::process::Command;

use testkit::require;

pub use self::cluster::HostCluster;
pub use self::host::{Host, Neighbour};
use self::namespaces::{Namespaces, shell};

/// The machine is one more member that is never cut off.
pub struct TestHosts {
    hosts: Vec<Host>,
    net: String,
    machine: String,
    switch: Namespaces,
}

const NEIGHBOUR: u8 = 200;

const PROGRAMS: [&str; 5] = ["ip", "unshare", "nsenter", "dockerd", "iptables"];

impl TestHosts {
    /// `None` if this is not possible: the test counts as skipped.
    pub async fn start(count: u8) -> Option<Self> {
        if let Err(why) = check_prerequisites() {
            require::skipped("netns", &why);
            return None;
        }
        let switch = Namespaces::new("switch").await;
        switch.run("ip link add bridge type bridge && ip link set bridge up");
        // So that tests do not meet.
        let net = uuid::Uuid::new_v4().into_bytes();
        let net = format!("10.{}.{}", 100 + net[0] % 100, net[1]);
        let machine = format!("{net}.254");
        uplink(&switch, &machine);
        let mut hosts = Vec::new();
        for number in 1..=count {
            hosts.push(Host::start(number, &net, switch.init()).await);
        }
        for host in &mut hosts {
            host.wait_until_engine_is_up().await;
        }
        Some(Self { hosts, net, machine, switch })
    }

    /// A host without kubeleet. There can be one.
    pub async fn neighbour(&self) -> Neighbour {
        Neighbour::start(NEIGHBOUR, &self.net, self.switch.init()).await
    }

    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    pub fn machine(&self) -> &str {
        &self.machine
    }

    pub fn all(&self) -> &[Host] {
        &self.hosts
    }
}

fn uplink(switch: &Namespaces, address: &str) {
    let name = format!("kt{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let init = switch.init().as_raw_nonzero();
    shell(&format!("ip link add {name} type veth peer name uplink netns {init}"));
    shell(&format!("ip addr add {address}/24 dev {name} && ip link set {name} up"));
    switch.run("ip link set dev uplink master bridge && ip link set dev uplink up");
}

fn check_prerequisites() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces require root".to_owned());
    }
    for program in PROGRAMS {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err(format!("{program} is not installed"));
        }
    }
    let tried = Command::new("unshare").args(["--net", "--pid", "--mount", "--fork", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}
