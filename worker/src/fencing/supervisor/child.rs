//! The supervisor's worker process: its start, signs of life, signals and exit status.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use daemon::backoff::Backoff;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::net::UnixStream;

use super::decide::WorkerState;

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
const SUPERVISOR_ONLY_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// With them the worker takes standard input for the pipe ([`crate::LivenessPipe::to_supervisor`]).
    pub arguments: Vec<OsString>,
}

pub(super) struct Child {
    program: Program,
    running: Option<RunningChild>,
    backoff: Backoff,
    restart_at: Option<Instant>,
}

struct RunningChild {
    pid: Pid,
    started: Instant,
    last_sign: Option<Instant>,
    started_after_expiry: bool,
    pipe: UnixStream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessExit {
    Code(u8),
    Signal(i32),
}

impl Child {
    pub(super) fn new(program: Program) -> Self {
        let backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        Self { program, running: None, backoff, restart_at: None }
    }

    /// A worker started after the expiry first enforces the fence itself.
    pub(super) fn start(&mut self, lease_is_expired: bool) -> io::Result<Pid> {
        match self.spawn() {
            Ok((pid, pipe)) => {
                let started_after_expiry = lease_is_expired;
                let started = Instant::now();
                self.running =
                    Some(RunningChild { pid, started, last_sign: None, started_after_expiry, pipe });
                Ok(pid)
            }
            Err(error) => {
                self.restart_at = Some(Instant::now() + self.backoff.next_exact());
                Err(error)
            }
        }
    }

    fn spawn(&self) -> io::Result<(Pid, UnixStream)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
        for name in SUPERVISOR_ONLY_VARIABLES {
            command.env_remove(name);
        }
        let pipe = UnixStream::from_std(ours)?;
        Ok((Pid::from_child(&command.spawn()?), pipe))
    }

    pub(super) fn state(&self) -> WorkerState {
        match (&self.running, self.restart_at) {
            (Some(running), _) => WorkerState::Running {
                age: running.started.elapsed(),
                silent_for: running.last_sign.map(|sign| sign.elapsed()),
                started_after_expiry: running.started_after_expiry,
            },
            (None, Some(at)) => {
                WorkerState::Exited { restart_in: at.saturating_duration_since(Instant::now()) }
            }
            (None, None) => WorkerState::NotStarted,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.running.as_ref().map(|running| running.pid)
    }

    /// Its exit status is not collected yet, so the id is not reused.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(running) = &self.running
            && let Err(error) = kill_process(running.pid, signal)
        {
            let process = running.pid.as_raw_nonzero();
            tracing::warn!(%process, ?signal, %error, "the worker process could not be signalled");
        }
    }

    /// Returns true for the worker's first sign; waits forever without a worker.
    ///
    /// # Cancel safety
    /// No sign is lost.
    pub(super) async fn sign_of_life(&mut self) -> bool {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        loop {
            if running.pipe.readable().await.is_err() {
                return std::future::pending().await;
            }
            match running.pipe.try_read(&mut [0; 256]) {
                // SIGCHLD follows.
                Ok(0) => return std::future::pending().await,
                Ok(_) => return running.last_sign.replace(Instant::now()).is_none(),
                Err(_) => {}
            }
        }
    }

    /// For a supervisor that was not running itself.
    pub(super) fn restart_silence(&mut self) {
        if let Some(running) = &mut self.running {
            running.last_sign = running.last_sign.map(|_| Instant::now());
        }
    }

    /// Collects every child: as process 1 of a container the supervisor is the parent of all orphaned
    /// processes.
    pub(super) fn reap(&mut self) -> Option<ProcessExit> {
        let mut worker_exit = None;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if self.pid() == Some(pid) {
                worker_exit = Some(exit_of(status));
            }
        }
        if worker_exit.is_some()
            && let Some(running) = self.running.take()
        {
            if running.started.elapsed() > HEALTHY_AFTER {
                self.backoff.reset();
            }
            self.restart_at = Some(Instant::now() + self.backoff.next_exact());
        }
        worker_exit
    }
}

fn exit_of(status: WaitStatus) -> ProcessExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ProcessExit::Code(u8::try_from(code).unwrap_or(1)),
        (None, signal) => ProcessExit::Signal(signal.unwrap_or(0)),
    }
}

impl ProcessExit {
    pub(super) fn code(self) -> u8 {
        match self {
            ProcessExit::Code(code) => code,
            ProcessExit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
        }
    }
}

impl std::fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProcessExit::Code(code) => write!(f, "exit code {code}"),
            ProcessExit::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
