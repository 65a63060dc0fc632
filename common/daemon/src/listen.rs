//! Listening sockets, also on addresses that the host does not have yet.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use tokio::net::{TcpListener, TcpSocket};

/// At most `net.core.somaxconn`. A burst fills the usual 128, and the next client waits a second for its
/// kernel's retry.
const BACKLOG: u32 = 4096;

const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Required,
    /// The host may get and lose it later. IPv4 only.
    Expected,
}

/// The error names a missing privilege.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    listen_at(address, Presence::Required)
}

pub fn listen_at(address: SocketAddr, presence: Presence) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted process gets its address back while old connections close.
    socket.set_reuseaddr(true)?;
    if presence == Presence::Expected {
        sockopt::set_ip_freebind(&socket, true)?;
    }
    socket.bind(address).map_err(|error| with_missing_right(error, address))?;
    socket.listen(BACKLOG)
}

pub fn datagrams_at(address: SocketAddr, presence: Presence) -> io::Result<UdpSocket> {
    if presence == Presence::Required {
        return UdpSocket::bind(address);
    }
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    sockopt::set_ip_freebind(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

fn with_missing_right(error: io::Error, address: SocketAddr) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied || address.port() >= FIRST_UNPRIVILEGED_PORT {
        return error;
    }
    io::Error::new(
        error.kind(),
        format!(
            "{error}: ports below {FIRST_UNPRIVILEGED_PORT} take the capability CAP_NET_BIND_SERVICE; for a unit \
             of systemd install packaging/systemd/privileged-ports.conf as a drop-in, or use a higher port"
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;

    /// With Podman the host has it only while a container runs.
    #[tokio::test]
    async fn an_address_that_the_host_does_not_have_is_listened_on_if_it_is_expected() {
        let address = SocketAddr::from(([203, 0, 113, 7], 0));
        let refused = [
            listen_at(address, Presence::Required).unwrap_err(),
            datagrams_at(address, Presence::Required).unwrap_err(),
        ];
        assert_eq!(refused.map(|error| error.kind()), [io::ErrorKind::AddrNotAvailable; 2]);
        let tcp = listen_at(address, Presence::Expected).unwrap();
        let udp = datagrams_at(address, Presence::Expected).unwrap();
        let found = [tcp.local_addr().unwrap().ip(), udp.local_addr().unwrap().ip()];
        assert_eq!(found, [address.ip(); 2]);
    }

    #[test]
    fn a_port_that_takes_a_right_is_refused_with_the_name_of_the_right() {
        let message = |port, kind| {
            with_missing_right(io::Error::from(kind), SocketAddr::from(([0, 0, 0, 0], port))).to_string()
        };
        let denied = message(80, io::ErrorKind::PermissionDenied);
        assert!(
            denied.contains("CAP_NET_BIND_SERVICE") && denied.contains("privileged-ports.conf"),
            "{denied}"
        );
        assert!(!message(80, io::ErrorKind::AddrInUse).contains("CAP"));
        assert!(!message(8080, io::ErrorKind::PermissionDenied).contains("CAP"));
    }

    #[tokio::test]
    async fn a_burst_of_connections_waits_to_be_accepted_and_none_has_to_ask_again() {
        let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let burst = somaxconn.trim().parse::<usize>().unwrap_or(128).min(400);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let started = Instant::now();
        let waiting = (0..burst).map(|_| TcpStream::connect(address).unwrap());
        assert_eq!(waiting.collect::<Vec<_>>().len(), burst);
        assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
        let taken = listen(address).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
