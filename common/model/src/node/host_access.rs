//! Access of pods to their node's host. The worker decides; it registers its policy, so that APIs and
//! schedulers know it in advance.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::spec::{PodSpec, Port, VolumeKind, VolumeMount};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostAccess {
    /// Besides loopback; `None` for any.
    pub port_addresses: Option<Vec<IpAddr>>,
    /// Recursive, but sockets and devices need their exact path.
    pub bind_prefixes: Vec<PathBuf>,
}

/// Empty for nearly all pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostRequest {
    addresses: BTreeSet<IpAddr>,
    paths: BTreeSet<String>,
}

impl HostRequest {
    pub fn of(pod: &PodSpec) -> Option<Self> {
        let (mut addresses, mut paths) = (BTreeSet::new(), BTreeSet::new());
        for container in &pod.containers {
            addresses.extend(addresses_of(&container.ports));
            paths.extend(paths_of(&container.volumes).map(str::to_owned));
        }
        (!addresses.is_empty() || !paths.is_empty()).then_some(Self { addresses, paths })
    }

    pub fn is_within(&self, other: &Self) -> bool {
        self.addresses.is_subset(&other.addresses) && self.paths.is_subset(&other.paths)
    }
}

impl HostAccess {
    /// The error names the refused value, and the setting that would allow it.
    pub fn check(&self, request: &HostRequest) -> Result<(), String> {
        self.check_paths(request.paths.iter().map(String::as_str))?;
        self.check_addresses(request.addresses.iter().copied())
    }

    pub fn check_ports(&self, ports: &[Port]) -> Result<(), String> {
        self.check_addresses(addresses_of(ports))
    }

    pub fn check_volumes(&self, volumes: &[VolumeMount]) -> Result<(), String> {
        self.check_paths(paths_of(volumes))
    }

    fn check_addresses(&self, mut addresses: impl Iterator<Item = IpAddr>) -> Result<(), String> {
        let Some(allowed) = &self.port_addresses else { return Ok(()) };
        match addresses.find(|address| !allowed.contains(address)) {
            Some(address) => Err(format!(
                "port addresses besides loopback have to be in KUBELEET_PORT_ADDRESSES of the node, and {address} \
                 is not; leave out the address, or ask the node's operator to allow it"
            )),
            None => Ok(()),
        }
    }

    fn check_paths<'a>(&self, mut paths: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let is_refused =
            |path: &&str| !self.bind_prefixes.iter().any(|prefix| Path::new(path).starts_with(prefix));
        match paths.find(is_refused) {
            Some(path) => Err(format!(
                "paths of the host have to be below KUBELEET_BIND_PREFIXES of the node, and {path} is not; use a named \
                 volume, as in data:/var/lib/app, or ask the node's operator to allow it"
            )),
            None => Ok(()),
        }
    }
}

fn addresses_of(ports: &[Port]) -> impl Iterator<Item = IpAddr> {
    ports.iter().filter_map(|port| port.host_ip).filter(|address| !address.is_loopback())
}

fn paths_of(volumes: &[VolumeMount]) -> impl Iterator<Item = &str> {
    let binds = volumes.iter().filter(|volume| volume.kind == VolumeKind::Bind);
    binds.filter_map(|volume| volume.source.as_deref())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn request(container: &str) -> Option<HostRequest> {
        HostRequest::of(&serde_json::from_str(&format!(r#"{{"containers":[{container}]}}"#)).unwrap())
    }

    #[test]
    fn only_addresses_and_paths_of_the_host_are_asked_of_it() {
        for nothing in [
            r#"{"image":"a"}"#,
            r#"{"image":"a","ports":["80",443,"127.0.0.1:1:1","[::1]:2:2"],"volumes":["data:/d"]}"#,
        ] {
            assert_eq!(request(nothing), None, "{nothing}");
        }
        let (one, both) = (
            request(r#"{"image":"a","volumes":["/srv/a:/a"]}"#).unwrap(),
            request(r#"{"image":"a","volumes":["/srv/a:/a","/etc:/e"],"ports":["0.0.0.0:80:80"]}"#).unwrap(),
        );
        assert!(one.is_within(&both) && one.is_within(&one) && !both.is_within(&one));
        let none = HostAccess::default();
        assert!(none.check(&one).unwrap_err().contains("/srv/a is not"));
        let some = HostAccess { bind_prefixes: vec!["/srv".into()], port_addresses: Some(Vec::new()) };
        assert_eq!(some.check(&one), Ok(()));
        assert!(some.check(&both).unwrap_err().contains("/etc is not"));
        let all = HostAccess { bind_prefixes: vec!["/".into()], port_addresses: None };
        assert_eq!(all.check(&both), Ok(()));
    }
}
