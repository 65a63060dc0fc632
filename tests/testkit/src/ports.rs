//! Ports for servers that are started a little later, or again.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::ops::Range;

use rustix::fs::{FlockOperation, flock};

const RANGE_LENGTH: u16 = 12_000;
/// Below are the ports of well-known services.
const MIN_PORT: u16 = 10_000;

/// It stays free over restarts: it is below the kernel's range for connections, and other tests get other
/// ports.
pub fn free_port() -> u16 {
    let ports = never_ephemeral();
    let path = std::env::temp_dir().join("kubeleet-test-ports");
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    let last: Option<u16> = text.parse().ok().filter(|port| ports.contains(port));
    let next = last.map_or(ports.start, |port| port + 1);
    let free = (next..ports.end).chain(ports.start..next).find(is_free).expect("a port is free");
    file.rewind().unwrap();
    file.set_len(0).unwrap();
    file.write_all(free.to_string().as_bytes()).unwrap();
    free
}

fn is_free(port: &u16) -> bool {
    TcpListener::bind(("127.0.0.1", *port)).is_ok()
}

fn never_ephemeral() -> Range<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end: u16 = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let end = end.max(MIN_PORT + 1000);
    end.saturating_sub(RANGE_LENGTH).max(MIN_PORT)..end
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn concurrent_callers_get_different_ports() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..50).map(|_| free_port()).collect::<Vec<_>>())).collect();
        let ports: Vec<u16> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let different: BTreeSet<_> = ports.iter().collect();
        assert_eq!(different.len(), ports.len());
        assert!(ports.iter().all(|port| never_ephemeral().contains(port)));
    }
}
