//! The guard: the parent of the worker process, which holds the fence when the worker can not. Invariant 5.
//!
//! It knows the lease file, the engine and its child, and no Redis. While the worker gives signs of life ([`crate::pulse`])
//! the worker holds the fence itself. When it hangs the guard kills it, when it is dead the guard starts it again, and
//! when the lease has run out and no worker gives a sign, the guard stops the `stop` pods of this node ([`looks`]) before
//! anything else. [`decide`] is pure and says what comes next; [`child`] is the process; [`place`] makes sure that there is
//! one guard a node; [`systemd`] tells the service manager.
//!
//! Whoever kills the guard leaves a worker that goes on and holds the fence alone. The next guard ends it and starts its
//! own; pods run on meanwhile.

mod child;
mod decide;
mod looks;
mod place;
mod systemd;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::clock::{BootClock, BootInstant, Clock};
use common::config::Config;
use common::ids::NodeName;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

pub use self::child::Program;
use self::child::{Child, End};
use self::decide::Facts;
use self::looks::Looks;
use self::place::Place;
use self::systemd::Systemd;
use crate::lease::{self, Found};

/// Codes with which a worker says that starting it again can not help: what is configured makes no sense, and that
/// another one has its name.
const HOPELESS: [u8; 2] = [2, REPLACED];
const REPLACED: u8 = 4;

/// Why there can be no guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// There is one.
    #[error(
        "a worker of node {node} runs on this machine already: end it first, or give this one another KUBELEET_NODE"
    )]
    Taken {
        /// The node.
        node: NodeName,
    },
    /// It has no place for its lock.
    #[error("the guard of {node} can not use {}: {source}; make the directory writable or set KUBELEET_STATE_DIR", path.display())]
    StateDir {
        /// The node.
        node: NodeName,
        /// Its file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refuses something it needs.
    #[error("the guard can not work: {0}")]
    System(#[from] io::Error),
}

/// Runs the worker as a child and holds the fence when it can not, until SIGTERM or SIGINT. Pods are left running. Gives
/// the exit code. To be run on a runtime of one thread.
///
/// # Errors
/// When it can not begin.
pub async fn run(config: Arc<Config>, program: Program) -> Result<u8, GuardError> {
    let mut guard = Guard::new(config, program).await?;
    if let Some(orphan) = guard.place.orphan() {
        place::end_orphan(&orphan, guard.lease().left().unwrap_or_default()).await;
    }
    let code = guard.watch().await?;
    if code == REPLACED && guard.ending_by_itself {
        // Its pods were left running for whoever has the name now. On this machine that renews the lease; on another,
        // nobody does.
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            fenced = fence_only(guard.config.clone()) => fenced?,
        }
    }
    Ok(code)
}

/// Waits until the lease of this node has run out, and then stops its `stop` pods. Ends at once when a worker renews the
/// lease: for when worker and guard are gone, and before it is known whether they come back.
///
/// # Errors
/// When the machine does not say which boot this is.
pub async fn fence_only(config: Arc<Config>) -> Result<(), GuardError> {
    let boot_id = lease::boot_id()?;
    let path = crate::lease_path(&config);
    let found = || Standing::of(lease::find(&path, &boot_id));
    let first = found();
    if let Some(left) = first.left() {
        tracing::info!(node = %config.node, "no worker: waiting {left:?} for its lease to run out");
    }
    let mut looks = Looks::new(config.clone());
    let mut clean = 0;
    while clean < CLEAN_ENOUGH {
        let now = found();
        if now.deadline > first.deadline {
            tracing::info!(node = %config.node, "a worker is back: nothing to fence");
            return Ok(());
        }
        match now.left() {
            // The sleeping clock stands still while the machine sleeps.
            Some(left) => tokio::time::sleep(left.min(Duration::from_secs(1))).await,
            None => {
                looks.begin(now.deadline);
                clean = if looks.end().await { clean + 1 } else { 0 };
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    tracing::info!(node = %config.node, "no pod with `on_disconnect: stop` runs here");
    Ok(())
}

/// How many looks in a row, a second apart, have to find nothing before a machine without worker and guard is left
/// alone.
const CLEAN_ENOUGH: u32 = 3;

struct Guard {
    config: Arc<Config>,
    boot_id: String,
    child: Child,
    looks: Looks,
    place: Place,
    systemd: Systemd,
    /// Since when the lease is out, and when the last look since then found nothing.
    out: Option<Instant>,
    clean: Option<Instant>,
    ending: Option<Instant>,
    /// Nobody asked for it.
    ending_by_itself: bool,
    ended: Option<End>,
}

impl Guard {
    async fn new(config: Arc<Config>, program: Program) -> Result<Self, GuardError> {
        let node = config.node.clone();
        let path = config.state_dir.join(format!("{node}.guard"));
        let place = Place::take(&path)
            .await
            .map_err(|source| GuardError::StateDir { node: node.clone(), path, source })?
            .ok_or(GuardError::Taken { node })?;
        Ok(Self {
            boot_id: lease::boot_id()?,
            child: Child::new(program),
            looks: Looks::new(config.clone()),
            place,
            systemd: Systemd::default(),
            out: None,
            clean: None,
            ending: None,
            ending_by_itself: false,
            ended: None,
            config,
        })
    }

    /// Until nothing is left to do; gives the exit code.
    async fn watch(&mut self) -> io::Result<u8> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut children = signal(SignalKind::child())?;
        loop {
            let lease = self.lease();
            let facts = self.facts(lease);
            let step = decide::step(&self.config.timing, &facts);
            if step.end {
                return Ok(self.ended.map_or(0, End::code));
            }
            self.take(step, lease);
            self.systemd.alive(self.status(lease));
            let rest = decide::rest(&self.config.timing, &facts);
            let slept = Instant::now();
            tokio::select! {
                biased;
                _ = children.recv() => self.bury(),
                _ = terminate.recv() => self.asked_to_end(Signal::TERM),
                _ = interrupt.recv() => self.asked_to_end(Signal::INT),
                first = self.child.beats() => if first { self.systemd.ready() },
                clean = self.looks.end() => self.clean = clean.then(Instant::now),
                () = tokio::time::sleep(rest) => {}
            }
            if slept.elapsed() > rest + decide::silence(&self.config.timing) {
                self.child.excuse();
            }
        }
    }

    fn lease(&self) -> Standing {
        Standing::of(lease::find(&crate::lease_path(&self.config), &self.boot_id))
    }

    fn facts(&mut self, lease: Standing) -> Facts {
        match lease.left() {
            Some(_) => (self.out, self.clean) = (None, None),
            None => _ = self.out.get_or_insert_with(Instant::now),
        }
        Facts {
            lease: lease.left(),
            out: self.out.map(|moment| moment.elapsed()).unwrap_or_default(),
            clean: self.clean.map(|moment| moment.elapsed()),
            looking: self.looks.are_busy(),
            child: self.child.stands(),
            ending: self.ending.map(|moment| moment.elapsed()),
        }
    }

    fn take(&mut self, step: decide::Step, lease: Standing) {
        let node = &self.config.node;
        if step.kill {
            tracing::error!(%node, "the worker hangs: killing it");
            self.child.signal(Signal::KILL);
        }
        if step.look {
            if self.clean.is_none() {
                tracing::error!(%node, "the lease has run out and the worker does not answer: the guard holds the fence");
            }
            self.looks.begin(lease.deadline);
        }
        if step.start {
            match self.child.start(lease.left().is_none()) {
                Ok(pid) => self.place.note(pid),
                Err(error) => tracing::error!(%node, %error, "the worker can not be started; trying on"),
            }
        }
    }

    fn bury(&mut self) {
        let Some(end) = self.child.bury() else { return };
        self.ended = Some(end);
        if self.ending.is_some() {
            return;
        }
        match end {
            End::Code(code) if HOPELESS.contains(&code) => {
                tracing::error!(node = %self.config.node, "the worker can not go on; see above");
                self.ending = Some(Instant::now());
                self.ending_by_itself = true;
            }
            how => {
                tracing::error!(node = %self.config.node, "the worker has ended ({how}); starting it again")
            }
        }
    }

    fn asked_to_end(&mut self, signal: Signal) {
        if self.ending.is_none() {
            self.ending = Some(Instant::now());
            self.systemd.stopping();
        }
        self.child.signal(signal);
    }

    fn status(&self, lease: Standing) -> String {
        let worker = match self.child.pid() {
            Some(pid) => format!("worker is process {}", pid.as_raw_nonzero()),
            None => "no worker".to_owned(),
        };
        let lease = match lease.left() {
            Some(_) => "its lease is good",
            None => "no lease: `stop` pods must not run",
        };
        format!("{}: {worker}, {lease}", self.config.node)
    }
}

/// How the lease in the file stands.
#[derive(Clone, Copy)]
struct Standing {
    /// When it runs out; the beginning of time when there is none.
    deadline: BootInstant,
}

impl Standing {
    fn of(found: Found) -> Self {
        match found {
            Found::Deadline(deadline) => Self { deadline },
            Found::Nothing(_) => Self { deadline: BootInstant { millis: 0 } },
        }
    }

    /// For how long it is good still.
    fn left(self) -> Option<Duration> {
        let now = BootClock.now();
        (now < self.deadline).then(|| self.deadline.since(now))
    }
}
