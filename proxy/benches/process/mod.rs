//! The selection of benches, and the measured processes.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use testkit::child_guard::ChildGuard;

pub fn is_asked_for(bench: &str) -> bool {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    args.is_empty() || args.iter().any(|arg| arg == bench)
}

pub fn is_smoke() -> bool {
    std::env::args().any(|arg| arg == "--smoke")
}

pub fn number<N: FromStr>(variable: &str, default: N) -> N {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

pub fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Its `main` checks the variable.
pub fn this_program_as(variable: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(variable, value);
    command
}

pub fn start(command: &mut Command, address: SocketAddr) -> ChildGuard {
    let server = ChildGuard::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nothing listens on {address}");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}
