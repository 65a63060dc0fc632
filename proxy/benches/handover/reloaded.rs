//! nginx and HAProxy, which reload after each change of pods.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::child_guard::ChildGuard;
use testkit::ports::free_port;

use crate::Pods;
use crate::fixture;
use crate::pod::PodProcess;
use crate::process::{self, local};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Nginx,
    Haproxy,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        })
    }
}

pub struct ReloadedProxy {
    program: Program,
    kills_after: Duration,
    directory: TempDir,
    port: u16,
    process: ChildGuard,
}

impl ReloadedProxy {
    pub fn start(program: Program, kills_after: Duration, pods: &Pods) -> Self {
        // The last worker may still listen on the previous port.
        let (directory, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = write_config(program, &directory, port, pods);
        let mut command = Command::new(program.to_string());
        match program {
            Program::Nginx => command.arg("-c").arg(file),
            Program::Haproxy => command.args(["-W", "-db", "-f"]).arg(file),
        };
        let process = process::start(&mut command, local(port));
        Self { program, kills_after, directory, port, process }
    }

    pub fn address(&self) -> SocketAddr {
        local(self.port)
    }

    pub fn replace(&mut self, pods: &mut Pods) {
        pods.push_back(PodProcess::start());
        let old = pods.pop_front().unwrap();
        let file = write_config(self.program, &self.directory, self.port, pods);
        match self.program {
            Program::Nginx => {
                let mut command = Command::new("nginx");
                command.arg("-c").arg(file).args(["-s", "reload"]);
                assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
            }
            Program::Haproxy => self.process.signal(Signal::USR2),
        }
        std::thread::sleep(self.kills_after);
        old.kill();
    }
}

fn write_config(program: Program, directory: &TempDir, port: u16, pods: &Pods) -> PathBuf {
    let addresses: Vec<SocketAddr> = pods.iter().map(PodProcess::address).collect();
    match program {
        Program::Nginx => {
            fixture::nginx_config(directory.path(), "proxy", port, &addresses, fixture::NGINX_LOCATION)
        }
        Program::Haproxy => {
            fixture::haproxy_config(directory.path(), port, &["option redispatch", "retries 3"], &addresses)
        }
    }
}
