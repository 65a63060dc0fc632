//! The processes that benches measure.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that ends with this.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // nginx ends its workers on SIGTERM.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts a process and waits until it listens on the TCP port.
    pub(crate) fn start(command: &mut Command, port: u16) -> Self {
        let server = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < deadline, "nothing listens on port {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Returns the CPU time that the process and its children have used.
    pub(crate) fn cpu(&self) -> Duration {
        let own = self.0.id();
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            let fields: Vec<u64> = stat
                .rsplit_once(") ")?
                .1
                .split(' ')
                .skip(1)
                .map_while(|field| field.parse().ok())
                .take(1)
                .collect();
            let parent = *fields.first()? as u32;
            let times: Vec<u64> = stat
                .rsplit_once(") ")?
                .1
                .split(' ')
                .skip(11)
                .take(2)
                .filter_map(|t| t.parse().ok())
                .collect();
            (id == own || parent == own).then(|| times.iter().sum::<u64>())
        });
        // Linux counts in hundredths of a second here on all architectures that matter.
        Duration::from_millis(processes.sum::<u64>() * 10)
    }
}
