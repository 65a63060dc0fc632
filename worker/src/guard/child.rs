//! The worker process of a guard: started, heard, signalled, and buried.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::net::UnixStream;

use super::decide;
use crate::backoff::Backoff;

/// The first wait before a worker that died is started again, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A worker that lived for so long was well: its death is a new story.
const WELL: Duration = Duration::from_secs(30);
/// What the service manager wants to hear from the guard alone.
const NOT_FOR_THE_CHILD: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// What to run as the worker.
#[derive(Debug, Clone)]
pub struct Program {
    /// The binary.
    pub path: PathBuf,
    /// Its arguments; with them it knows that standard input is its guard ([`crate::Pulse::to_guard`]).
    pub arguments: Vec<OsString>,
}

/// The worker process, over all its lives.
pub(super) struct Child {
    program: Program,
    up: Option<Up>,
    backoff: Backoff,
    again: Option<Instant>,
}

struct Up {
    pid: Pid,
    born: Instant,
    heard: Option<Instant>,
    born_out: bool,
    stream: UnixStream,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Child {
    pub(super) fn new(program: Program) -> Self {
        Self { program, up: None, backoff: Backoff::new(BACKOFF.0, BACKOFF.1), again: None }
    }

    /// Starts it. `lease_is_out` is remembered: it is about to fence by itself then.
    pub(super) fn start(&mut self, lease_is_out: bool) -> io::Result<Pid> {
        let started = self.spawn();
        match started {
            Ok((pid, stream)) => {
                self.up = Some(Up { pid, born: Instant::now(), heard: None, born_out: lease_is_out, stream });
                Ok(pid)
            }
            Err(error) => {
                self.again = Some(Instant::now() + self.backoff.next());
                Err(error)
            }
        }
    }

    fn spawn(&self) -> io::Result<(Pid, UnixStream)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
        for name in NOT_FOR_THE_CHILD {
            command.env_remove(name);
        }
        let stream = UnixStream::from_std(ours)?;
        Ok((Pid::from_child(&command.spawn()?), stream))
    }

    /// How it stands.
    pub(super) fn stands(&self) -> decide::Child {
        match (&self.up, self.again) {
            (Some(up), _) => decide::Child::Up {
                age: up.born.elapsed(),
                silent: up.heard.map(|heard| heard.elapsed()),
                born_out: up.born_out,
            },
            (None, Some(again)) => decide::Child::Down(again.saturating_duration_since(Instant::now())),
            (None, None) => decide::Child::Never,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.up.as_ref().map(|up| up.pid)
    }

    /// Sends it a signal. It is our child and not yet buried: the number is nobody else's.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(up) = &self.up
            && let Err(error) = kill_process(up.pid, signal)
        {
            tracing::warn!(process = up.pid.as_raw_nonzero(), ?signal, %error, "a signal did not arrive");
        }
    }

    /// Waits for a sign of life; for ever when there is no worker. True when it is its first.
    pub(super) async fn beats(&mut self) -> bool {
        let Some(up) = &mut self.up else { return std::future::pending().await };
        loop {
            if up.stream.readable().await.is_err() {
                return std::future::pending().await;
            }
            match up.stream.try_read(&mut [0; 256]) {
                // It has closed its end: SIGCHLD will say the rest.
                Ok(0) => return std::future::pending().await,
                Ok(_) => return up.heard.replace(Instant::now()).is_none(),
                Err(_) => {}
            }
        }
    }

    /// Counts its silence from now on: it was the guard that did not listen.
    pub(super) fn excuse(&mut self) {
        if let Some(up) = &mut self.up {
            up.heard = up.heard.map(|_| Instant::now());
        }
    }

    /// Buries every child that has ended: as process 1 of a container the guard inherits all orphans. Gives how the
    /// worker ended, if it is among them.
    pub(super) fn bury(&mut self) -> Option<End> {
        let mut ours = None;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if self.pid() == Some(pid) {
                ours = Some(end(status));
            }
        }
        if ours.is_some()
            && let Some(up) = self.up.take()
        {
            if up.born.elapsed() > WELL {
                self.backoff.reset();
            }
            self.again = Some(Instant::now() + self.backoff.next());
        }
        ours
    }
}

fn end(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(u8::try_from(code).unwrap_or(1)),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    }
}

impl End {
    /// As an exit code, in the way of shells.
    pub(super) fn code(self) -> u8 {
        match self {
            End::Code(code) => code,
            End::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Code(code) => write!(f, "exit code {code}"),
            End::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
