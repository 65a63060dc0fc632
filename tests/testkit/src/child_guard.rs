//! Child processes that end with their test, however the test ends.
//!
//! A killed test binary drops no [`ChildGuard`]. So a shell reads from a pipe to the test, and kills the
//! child's process group when the pipe closes ([`Watchdog`]).

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

#[derive(Debug)]
pub struct Watchdog(Child);

impl Watchdog {
    pub fn spawn(script: &str, zero: &OsStr) -> std::io::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("cat >/dev/null; {script}")).arg(zero);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self(command.spawn()?))
    }

    pub fn trigger(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _gone = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _status = self.0.wait();
    }
}

/// In a process group of its own, which is killed on drop.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
    watchdog: Option<Watchdog>,
    is_reaped: bool,
}

impl ChildGuard {
    pub fn spawn(command: &mut Command) -> std::io::Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
        let watchdog = Watchdog::spawn("kill -s KILL -- -$0", OsStr::new(&child.id().to_string()))?;
        Ok(Self { child, watchdog: Some(watchdog), is_reaped: false })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        // It fails only when the child has ended already.
        let _gone = kill_process(self.pid(), signal);
    }

    pub fn signal_group(&self, signal: Signal) {
        let _gone = kill_process_group(self.pid(), signal);
    }

    /// The child stays a zombie, so its ids are not reused.
    pub fn ended(&self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()), options).unwrap()?;
        let code = status.exit_status().map(|code| code << 8).or(status.terminating_signal());
        code.map(ExitStatus::from_raw)
    }

    /// Returns when the child is gone.
    pub fn kill(&mut self) {
        if !self.is_reaped {
            self.signal_group(Signal::KILL);
            let _status = self.child.wait();
            self.is_reaped = true;
        }
    }

    /// Kills the child after `limit`, and then returns none.
    pub fn terminate(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        None
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // First the watchdog: it could kill a process that has been given the same id since.
        drop(self.watchdog.take());
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pipe closes when the test binary is killed; here the test closes it.
    #[test]
    fn a_child_and_its_children_end_when_the_test_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & sleep 600"]);
        let mut guarded = ChildGuard::spawn(&mut command).unwrap();
        let group = guarded.pid();
        guarded.watchdog.as_mut().unwrap().trigger();
        let deadline = Instant::now() + Duration::from_secs(10);
        let wait = || {
            assert!(Instant::now() < deadline, "group {group:?} is still there");
            std::thread::sleep(Duration::from_millis(10));
        };
        while guarded.ended().is_none() {
            wait();
        }
        // A zombie counts as a member of the group until it is reaped.
        let _status = guarded.child.wait();
        guarded.is_reaped = true;
        while rustix::process::test_kill_process_group(group).is_ok() {
            wait();
        }
    }
}
