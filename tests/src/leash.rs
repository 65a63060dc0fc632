//! Children that die with the test, whatever becomes of it.
//!
//! A panic unwinds and drops the [`Leashed`], which kills. But a test binary can also be killed (a runner's timeout,
//! Ctrl-C), and then nothing is dropped: a tiny shell holds the other end of a pipe to the test, and when the pipe
//! closes it kills the child's process group ([`Watchdog`]).

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

/// A tiny shell that does something when this process is gone. Dropped, it does not.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// What it does then, with `$0`.
    pub(crate) fn spawn(script: &str, zero: &OsStr) -> std::io::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("cat >/dev/null; {script}")).arg(zero);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self(command.spawn()?))
    }

    /// As if this process were gone.
    #[cfg(test)]
    pub(crate) fn let_go(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _gone = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _status = self.0.wait();
    }
}

/// A child in a process group of its own. Dropped, its whole group is killed.
#[derive(Debug)]
pub struct Leashed {
    child: Child,
    watchdog: Option<Watchdog>,
    buried: bool,
}

impl Leashed {
    /// Starts the command. What its standard streams are is the command's matter; stdin is closed.
    pub fn spawn(command: &mut Command) -> std::io::Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
        let watchdog = Watchdog::spawn("kill -s KILL -- -$0", OsStr::new(&child.id().to_string()))?;
        Ok(Self { child, watchdog: Some(watchdog), buried: false })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the child alone.
    pub fn signal(&self, signal: Signal) {
        // Gone already is as good.
        let _gone = kill_process(self.pid(), signal);
    }

    /// Sends a signal to the child and to all it has started, as far as they stayed in its group.
    pub fn signal_group(&self, signal: Signal) {
        let _gone = kill_process_group(self.pid(), signal);
    }

    /// How it ended, if it has. It is not buried yet: its number and its group's stay its own.
    pub fn ended(&self) -> Option<ExitStatus> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()), look).unwrap()?;
        let code = status.exit_status().map(|code| code << 8).or(status.terminating_signal());
        code.map(ExitStatus::from_raw)
    }

    /// SIGKILL to the whole group, also when its leader has ended already; returns when the child is gone.
    pub fn kill(&mut self) {
        if !self.buried {
            self.signal_group(Signal::KILL);
            let _status = self.child.wait();
            self.buried = true;
        }
    }

    /// SIGTERM to the child; how it ended, or none when it had not after `limit` (it is killed then).
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

impl Drop for Leashed {
    fn drop(&mut self) {
        // First the watchdog, so that it can not fire at a number that is somebody else's by then.
        drop(self.watchdog.take());
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pipe closes when the test binary is killed; here it is closed by hand.
    #[test]
    fn when_the_test_is_gone_so_is_its_child_and_the_childs_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & sleep 600"]);
        let mut leashed = Leashed::spawn(&mut command).unwrap();
        let group = leashed.pid();
        leashed.watchdog.as_mut().unwrap().let_go();
        let deadline = Instant::now() + Duration::from_secs(10);
        let wait = || {
            assert!(Instant::now() < deadline, "group {group:?} is still there");
            std::thread::sleep(Duration::from_millis(10));
        };
        while leashed.ended().is_none() {
            wait();
        }
        // A zombie counts as a member until it is buried.
        let _status = leashed.child.wait();
        leashed.buried = true;
        while rustix::process::test_kill_process_group(group).is_ok() {
            wait();
        }
    }
}
