//! Ports for servers that are started a little later, or again.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::ops::Range;

use rustix::fs::{FlockOperation, flock};

/// As many as are given out in turn, where there is room for them.
const MOST: u16 = 12_000;
/// Below are services that people know by their number.
const LEAST: u16 = 10_000;

/// A port of loopback that is free, and stays so until its server is there, also while that is started again: the kernel
/// gives it to no connection by chance, and no other test on this machine is told of it soon.
///
/// # Panics
/// When none is free.
pub fn free_port() -> u16 {
    let ports = never_given_by_chance();
    let path = std::env::temp_dir().join("kubeleet-test-ports");
    let mut last = File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap();
    flock(&last, FlockOperation::LockExclusive).unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).unwrap();
    let begin =
        text.parse().ok().filter(|port| ports.contains(port)).map_or(ports.start, |port: u16| port + 1);
    let free = (begin..ports.end).chain(ports.start..begin).find(is_free).expect("a port is free");
    last.rewind().unwrap();
    last.set_len(0).unwrap();
    last.write_all(free.to_string().as_bytes()).unwrap();
    free
}

fn is_free(port: &u16) -> bool {
    TcpListener::bind(("127.0.0.1", *port)).is_ok()
}

/// Below the range from which the kernel takes the ports of connections, and of listeners that ask for any.
fn never_given_by_chance() -> Range<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end: u16 = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let end = end.max(LEAST + 1000);
    end.saturating_sub(MOST).max(LEAST)..end
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..50).map(|_| free_port()).collect::<Vec<_>>())).collect();
        let given: Vec<u16> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let different: BTreeSet<_> = given.iter().collect();
        assert_eq!(different.len(), given.len());
        assert!(given.iter().all(|port| never_given_by_chance().contains(port)));
    }
}
