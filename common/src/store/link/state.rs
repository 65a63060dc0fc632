//! What everyone on one link shares: the connection to the master, or the reason why there is none.
//!
//! Two numbers count changes. The *generation* is one connection; the *term* is one master: connections that outlive
//! a reconnect (those of blocking loops) go by the term, for to them only another master matters.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::super::error::StoreError;
use super::LinkHealth;
use super::dial::{Address, Dialer};
use super::fault::{Cure, Fault};
use super::replicas::{Reach, ReplicaMemory, Survey};
use super::wire;

/// The connection all non-blocking commands use.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) connection: wire::Connection,
    pub(super) master: Address,
    pub(super) generation: u64,
    pub(super) term: u64,
}

enum Connection {
    Up(Up),
    /// `told`: the log has heard of it.
    Away {
        since: Instant,
        error: StoreError,
        told: bool,
    },
}

struct State {
    connection: Connection,
    generation: u64,
    term: u64,
    /// The master of this term; none right after a term ended.
    master: Option<Address>,
}

/// See the module.
pub(super) struct Shared {
    pub(super) dialer: Dialer,
    pub(super) response_timeout: Duration,
    pub(super) connect_timeout: Duration,
    state: watch::Sender<State>,
    health: watch::Sender<LinkHealth>,
    replicas: Mutex<ReplicaMemory>,
    recheck: Notify,
}

impl Shared {
    pub(super) fn new(dialer: Dialer, response_timeout: Duration, connect_timeout: Duration) -> Self {
        let error = Fault::lost("connect", "not connected yet").error;
        let since = Instant::now();
        let health = LinkHealth::Away { since, why: error.to_string() };
        let connection = Connection::Away { since, error, told: false };
        Self {
            dialer,
            response_timeout,
            connect_timeout,
            state: watch::Sender::new(State { connection, generation: 0, term: 0, master: None }),
            health: watch::Sender::new(health),
            replicas: Mutex::default(),
            recheck: Notify::new(),
        }
    }

    pub(super) fn health(&self) -> watch::Receiver<LinkHealth> {
        self.health.subscribe()
    }

    /// The connection to the master. Waits for one no longer than a connection may take, then says why there is none;
    /// at once when a person has to do something about it.
    pub(super) async fn up(&self, what: &str) -> Result<Up, StoreError> {
        if let Connection::Up(up) = &self.state.borrow().connection {
            return Ok(up.clone());
        }
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| match &state.connection {
            Connection::Up(_) => true,
            Connection::Away { error, .. } => !error.is_transient(),
        });
        // Whether it settled or time ran out: what counts is the state now.
        drop(timeout(self.connect_timeout, settled).await);
        match &self.state.borrow().connection {
            Connection::Up(up) => Ok(up.clone()),
            Connection::Away { error, .. } => Err(instead_of(what, error)),
        }
    }

    /// The connection to the master, however long that takes.
    pub(super) async fn up_at_last(&self) -> Up {
        let mut state = self.state.subscribe();
        loop {
            if let Connection::Up(up) = &state.borrow_and_update().connection {
                return up.clone();
            }
            if state.changed().await.is_err() {
                // The sender lives in self, so this can not happen.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until another connection than that of `generation` is, or should be, in use.
    pub(super) async fn lost(&self, generation: u64) {
        let gone =
            |state: &State| !matches!(&state.connection, Connection::Up(up) if up.generation == generation);
        // The sender lives in self, so this can not fail.
        drop(self.state.subscribe().wait_for(gone).await);
    }

    /// Waits until `term` is over.
    pub(super) async fn term_over(&self, term: u64) {
        drop(self.state.subscribe().wait_for(|state| state.term != term).await);
    }

    pub(super) fn in_term(&self, term: u64) -> bool {
        self.state.borrow().term == term
    }

    /// There is a connection again.
    pub(super) fn gain(&self, connection: wire::Connection, master: Address) -> Up {
        let mut gained = None;
        self.state.send_modify(|state| {
            state.generation += 1;
            if state.master.as_ref() != Some(&master) {
                state.term += 1;
                state.master = Some(master.clone());
            }
            let up = Up { connection, master, generation: state.generation, term: state.term };
            tracing::info!(master = %up.master, generation = up.generation, "connected to Redis");
            let health = LinkHealth::Connected { master: up.master.to_string(), generation: up.generation };
            self.health.send_replace(health);
            gained = Some(up.clone());
            state.connection = Connection::Up(up);
        });
        gained.expect("send_modify runs its closure exactly once, at once")
    }

    /// A try to connect failed. Logged when it is the first one, and when from now on a person has to do something.
    pub(super) fn still_away(&self, error: StoreError) {
        self.state.send_modify(|state| {
            let Connection::Away { since, error: last, told } = &mut state.connection else { return };
            if *told && (error.is_transient() || !last.is_transient()) {
                tracing::debug!(%error, "Redis is still away");
            } else {
                tracing::warn!(%error, "Redis is away");
            }
            self.health.send_replace(LinkHealth::Away { since: *since, why: error.to_string() });
            (*last, *told) = (error, true);
        });
    }

    /// Acts on a failure met by the shared connection of `generation`.
    pub(super) fn act(&self, generation: u64, fault: &Fault) {
        match fault.cure {
            Cure::Keep => {}
            Cure::Recheck => self.recheck(),
            Cure::Reconnect | Cure::NewMaster => {
                self.lose(fault, |up| up.generation == generation);
            }
        }
    }

    /// Acts on a failure met by a connection of its own. Its breaking says nothing certain of the shared one.
    pub(super) fn act_on_own(&self, term: u64, fault: &Fault) {
        match fault.cure {
            Cure::Keep => {}
            Cure::Recheck | Cure::Reconnect => self.recheck(),
            Cure::NewMaster => self.lose(fault, |up| up.term == term),
        }
    }

    fn lose(&self, fault: &Fault, concerned: impl Fn(&Up) -> bool) {
        self.state.send_if_modified(|state| {
            let Connection::Up(up) = &state.connection else { return false };
            if !concerned(up) {
                return false;
            }
            let error = &fault.error;
            tracing::warn!(master = %up.master, generation = up.generation, %error, "lost Redis");
            if fault.cure == Cure::NewMaster {
                state.term += 1;
                state.master = None;
            }
            let since = Instant::now();
            self.health.send_replace(LinkHealth::Away { since, why: error.to_string() });
            state.connection = Connection::Away { since, error: error.clone(), told: true };
            true
        });
    }

    /// Has the keeper look at once whether the master is still the master.
    pub(super) fn recheck(&self) {
        self.recheck.notify_one();
    }

    /// Waits for [`Shared::recheck`].
    pub(super) async fn rechecked(&self) {
        self.recheck.notified().await;
    }

    /// These replicas are attached to the master right now. Gives how far a write has to get.
    pub(super) fn note_attached(&self, replicas: BTreeSet<String>) -> Reach {
        self.replicas().note_attached(Instant::now(), replicas)
    }

    /// The sentinels say this of the replicas.
    pub(super) fn note_survey(&self, survey: Survey) {
        self.replicas().note_survey(survey);
    }

    /// How many replicas a write would have to reach.
    pub(super) fn known_replicas(&self) -> usize {
        self.replicas().known(Instant::now())
    }

    fn replicas(&self) -> MutexGuard<'_, ReplicaMemory> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `what` is told, which could not be sent because of `error`.
fn instead_of(what: &str, error: &StoreError) -> StoreError {
    let why = match error {
        StoreError::Unreachable { why, .. } => why.clone(),
        StoreError::Timeout { what: other } => format!("it has not answered {other} and does not answer now"),
        StoreError::NotMaster
        | StoreError::Refused(_)
        | StoreError::WrongType { .. }
        | StoreError::Corrupt { .. } => return error.clone(),
    };
    StoreError::Unreachable { what: what.into(), why }
}
