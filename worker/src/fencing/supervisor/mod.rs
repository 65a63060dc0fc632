//! The supervisor: the worker's parent process, which enforces the fence when the worker cannot. Invariant 5.
//!
//! It does not know Redis. It kills a hanging worker and restarts an exited one; if the lease has expired
//! without signs of life ([`crate::LivenessPipe`]), it first stops the `on_disconnect: stop` pods. If it is
//! killed, the worker goes on; the next supervisor replaces that worker with its own.

mod child;
mod decide;
mod error;
mod fence_only;
mod fencing;
mod instance_lock;
mod observed_lease;
mod systemd;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use daemon::config::Config;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

pub use self::child::Program;
use self::child::{Child, ProcessExit};
use self::decide::{SupervisorFacts, SupervisorStep};
pub use self::error::SupervisorError;
pub use self::fence_only::fence_only;
use self::fencing::Fencing;
use self::instance_lock::InstanceLock;
use self::observed_lease::ObservedLease;
use self::systemd::Systemd;
use crate::fencing::lease_file;
use crate::session::identity::IdentityFiles;

/// The exit code of a worker whose name another worker has.
const REPLACED: u8 = 4;
/// Not restarted after: invalid configuration, and a taken name.
const FINAL_EXIT_CODES: [u8; 2] = [2, REPLACED];

/// Until SIGTERM or SIGINT, on a single-threaded runtime. Returns the exit code.
pub async fn run(config: Arc<Config>, program: Program) -> Result<u8, SupervisorError> {
    let mut supervisor = Supervisor::new(config, program).await?;
    if let Some(worker) = supervisor.lock.leftover_worker() {
        let remaining = supervisor.lease().remaining().unwrap_or_default();
        instance_lock::end_leftover_worker(&worker, remaining).await;
    }
    let code = supervisor.watch().await?;
    if code == REPLACED && supervisor.has_worker_given_up {
        // On this machine the worker with the name renews the lease, and nothing is fenced.
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            fenced = fence_only(supervisor.config.clone()) => fenced?,
        }
    }
    Ok(code)
}

struct Supervisor {
    config: Arc<Config>,
    boot_id: String,
    child: Child,
    fencing: Fencing,
    lock: InstanceLock,
    systemd: Systemd,
    expired_since: Option<Instant>,
    clean_since: Option<Instant>,
    ending_since: Option<Instant>,
    /// The worker's exit code says that it cannot go on, and no end was requested.
    has_worker_given_up: bool,
    last_exit: Option<ProcessExit>,
}

impl Supervisor {
    async fn new(config: Arc<Config>, program: Program) -> Result<Self, SupervisorError> {
        let node = config.node.clone();
        let path = config.state_dir.join(format!("{node}.guard"));
        let lock = InstanceLock::acquire(&path)
            .await
            .map_err(|source| SupervisorError::StateDir { node: node.clone(), path, source })?
            .ok_or(SupervisorError::Taken { node })?;
        Ok(Self {
            boot_id: lease_file::boot_id()?,
            child: Child::new(program),
            fencing: Fencing::new(config.clone()),
            lock,
            systemd: Systemd::default(),
            expired_since: None,
            clean_since: None,
            ending_since: None,
            has_worker_given_up: false,
            last_exit: None,
            config,
        })
    }

    async fn watch(&mut self) -> io::Result<u8> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut children = signal(SignalKind::child())?;
        loop {
            let lease = self.lease();
            let facts = self.facts(lease);
            let step = decide::step(&self.config.timing, &facts);
            if step.end {
                return Ok(self.last_exit.map_or(0, ProcessExit::code));
            }
            self.carry_out(step, lease);
            self.lock.keep(self.child.pid());
            self.systemd.watchdog(self.status(lease));
            let wait = decide::wait(&self.config.timing, &facts);
            let wait_began = Instant::now();
            tokio::select! {
                biased;
                _ = children.recv() => self.after_child_exit(),
                _ = terminate.recv() => self.begin_end(Signal::TERM),
                _ = interrupt.recv() => self.begin_end(Signal::INT),
                is_first = self.child.sign_of_life() => if is_first { self.systemd.ready() },
                is_clean = self.fencing.end() => self.clean_since = is_clean.then(Instant::now),
                () = tokio::time::sleep(wait) => {}
            }
            // The supervisor itself was starved: the worker's silence proves nothing.
            if wait_began.elapsed() > wait + decide::max_silence(&self.config.timing) {
                self.child.restart_silence();
            }
        }
    }

    fn lease(&self) -> ObservedLease {
        ObservedLease::read(&self.config, &self.boot_id)
    }

    fn facts(&mut self, lease: ObservedLease) -> SupervisorFacts {
        let lease_remaining = lease.remaining();
        if lease_remaining.is_some() {
            self.expired_since = None;
            self.clean_since = None;
        } else {
            self.expired_since.get_or_insert_with(Instant::now);
        }
        SupervisorFacts {
            lease_remaining,
            expired_for: self.expired_since.map(|since| since.elapsed()).unwrap_or_default(),
            clean_for: self.clean_since.map(|since| since.elapsed()),
            is_fencing: self.fencing.is_busy(),
            worker: self.child.state(),
            ending_for: self.ending_since.map(|since| since.elapsed()),
        }
    }

    fn carry_out(&mut self, step: SupervisorStep, lease: ObservedLease) {
        let node = &self.config.node;
        if step.kill {
            tracing::error!(%node, "the worker process hangs: killing it");
            self.child.signal(Signal::KILL);
        }
        if step.fence {
            if self.clean_since.is_none() {
                tracing::error!(
                    %node,
                    "the lease has expired and no worker process answers: the supervisor stops pods with \
                     `on_disconnect: stop`"
                );
            }
            self.fencing.begin(lease.deadline);
        }
        if step.start {
            match self.child.start(lease.remaining().is_none()) {
                Ok(pid) => self.lock.record_worker(pid),
                Err(error) => {
                    tracing::error!(%node, %error, "the worker process cannot be started; retrying")
                }
            }
        }
    }

    fn after_child_exit(&mut self) {
        let Some(exit) = self.child.reap() else { return };
        self.last_exit = Some(exit);
        if self.ending_since.is_some() {
            return;
        }
        let node = &self.config.node;
        match exit {
            ProcessExit::Code(code) if FINAL_EXIT_CODES.contains(&code) => {
                tracing::error!(%node, "the worker cannot go on and is not started again; see its error above");
                self.ending_since = Some(Instant::now());
                self.has_worker_given_up = true;
            }
            exit => tracing::error!(%node, "the worker process ended ({exit}): starting it again"),
        }
    }

    fn begin_end(&mut self, signal: Signal) {
        if self.ending_since.is_none() {
            self.ending_since = Some(Instant::now());
            self.systemd.stopping();
        }
        self.child.signal(signal);
    }

    fn status(&self, lease: ObservedLease) -> String {
        let worker = match self.child.pid() {
            Some(pid) => format!("worker is process {}", pid.as_raw_nonzero()),
            None => "no worker process".to_owned(),
        };
        let lease = match lease.remaining() {
            Some(_) => "its lease is valid",
            None => "no lease: `stop` pods must not run",
        };
        match IdentityFiles::of(&self.config).hold() {
            Some(why) => format!("HOLDING: {why}; {worker}, {lease}"),
            None => format!("{}: {worker}, {lease}", self.config.node),
        }
    }
}
