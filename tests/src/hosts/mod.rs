//! Several hosts on one machine: each has its own network, process numbers and mounts, and in them its own Docker engine and
//! whatever is started there. They hang on a switch; a host that is cut off is taken from it, as if its cable led nowhere.
//!
//! A host is the first process of its own pid namespace: when it is gone so is everything in it, containers and interfaces
//! included, whatever becomes of the test. `/sys` stays the machine's, or the engines would miss their control groups.

mod cluster;
mod engine;
mod host;

use std::process::Command;

use crate::require;

pub use self::cluster::HostCluster;
pub use self::host::Host;
use self::host::Space;

/// Hosts on a switch, and the machine they run on as one more that is never cut off.
pub struct Hosts {
    hosts: Vec<Host>,
    machine: String,
    _switch: Space,
}

/// What a host is made with.
const PROGRAMS: [&str; 5] = ["ip", "unshare", "nsenter", "dockerd", "iptables"];

impl Hosts {
    /// So many hosts with their engines, which have the test image; none when that can not be done here (the test says so).
    ///
    /// # Panics
    /// When it can not be done and `REQUIRE` lists `netns`, or when it fails half-way.
    pub async fn start(count: u8) -> Option<Self> {
        if let Err(why) = possible() {
            require::skipped("netns", &why);
            return None;
        }
        let switch = Space::new("switch").await;
        switch.run("ip link add bridge type bridge && ip link set bridge up");
        // A network of its own among those that are private, so that tests do not meet.
        let net = uuid::Uuid::new_v4().into_bytes();
        let net = format!("10.{}.{}", 100 + net[0] % 100, net[1]);
        let machine = format!("{net}.254");
        uplink(&switch, &machine);
        let mut hosts = Vec::new();
        for number in 1..=count {
            hosts.push(Host::start(number, &net, switch.init()).await);
        }
        for host in &mut hosts {
            host.engine_is_up().await;
        }
        Some(Self { hosts, machine, _switch: switch })
    }

    /// One of them, from 0.
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// The machine's own address on the switch.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// All of them.
    pub fn all(&self) -> &[Host] {
        &self.hosts
    }
}

/// The machine's own plug in the switch. It goes when the switch goes.
fn uplink(switch: &Space, address: &str) {
    let name = format!("kt{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let init = switch.init().as_raw_nonzero();
    shell(&format!("ip link add {name} type veth peer name uplink netns {init}"));
    shell(&format!("ip addr add {address}/24 dev {name} && ip link set {name} up"));
    switch.run("ip link set dev uplink master bridge && ip link set dev uplink up");
}

fn possible() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces take root".to_owned());
    }
    for program in PROGRAMS {
        let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !there.is_ok_and(|output| output.status.success()) {
            return Err(format!("there is no {program}"));
        }
    }
    let tried = Command::new("unshare").args(["--net", "--pid", "--mount", "--fork", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A line of shell on the machine itself.
fn shell(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
