//! Sockets on which clients from outside connect.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// How many connections may wait to be accepted; the kernel lowers it to `net.core.somaxconn`. The usual 128
/// are used up by a burst of connections, and the next one waits a second until its kernel asks again.
const BACKLOG: u32 = 4096;

/// Any process may listen on ports from this one on.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Listens on an address; port 0 means any free port.
///
/// # Errors
/// The error of the system, for example that the address is in use. It says which right is missing.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted process gets its address back while connections of the former one are still closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address).map_err(|error| with_missing_right(error, address))?;
    socket.listen(BACKLOG)
}

/// Adds to the error of the system what to do where the port takes a right that this process lacks.
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
