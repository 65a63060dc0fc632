//! The state that all users of a link share.
//!
//! The *generation* counts connections, the *term* counts masters. A dedicated connection ends with the term.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::dial::{Address, RedisDialer};
use super::fault::{ConnectionAction, LinkFault};
use super::health::LinkHealth;
use super::replicas::{ConfirmTarget, ReplicaTracker, SentinelView};
use super::transport::LinkConnection;
use crate::error::StoreError;

#[derive(Clone)]
pub(super) struct MasterConnection {
    pub(super) connection: LinkConnection,
    pub(super) address: Address,
    pub(super) generation: u64,
    pub(super) term: u64,
}

enum MasterStatus {
    Connected(MasterConnection),
    Disconnected { since: Instant, error: StoreError, is_logged: bool },
}

struct MasterState {
    status: MasterStatus,
    generation: u64,
    term: u64,
    /// `None` until the next master is known.
    master: Option<Address>,
}

pub(super) struct SharedState {
    pub(super) dialer: RedisDialer,
    pub(super) response_timeout: Duration,
    pub(super) connect_timeout: Duration,
    state: watch::Sender<MasterState>,
    health: watch::Sender<LinkHealth>,
    replicas: Mutex<ReplicaTracker>,
    check_requested: Notify,
}

impl SharedState {
    pub(super) fn new(dialer: RedisDialer, response_timeout: Duration, connect_timeout: Duration) -> Self {
        let error = LinkFault::lost("connect", "not connected yet").error;
        let since = Instant::now();
        let health = LinkHealth::Disconnected { since, why: error.to_string() };
        let status = MasterStatus::Disconnected { since, error, is_logged: false };
        Self {
            dialer,
            response_timeout,
            connect_timeout,
            state: watch::Sender::new(MasterState { status, generation: 0, term: 0, master: None }),
            health: watch::Sender::new(health),
            replicas: Mutex::default(),
            check_requested: Notify::new(),
        }
    }

    pub(super) fn health(&self) -> watch::Receiver<LinkHealth> {
        self.health.subscribe()
    }

    /// Waits at most for the connect timeout, and not at all if an operator must act first.
    pub(super) async fn master(&self, what: &str) -> Result<MasterConnection, StoreError> {
        if let MasterStatus::Connected(master) = &self.state.borrow().status {
            return Ok(master.clone());
        }
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| match &state.status {
            MasterStatus::Connected(_) => true,
            MasterStatus::Disconnected { error, .. } => error.needs_operator(),
        });
        // The state decides, also after a timeout.
        drop(timeout(self.connect_timeout, settled).await);
        match &self.state.borrow().status {
            MasterStatus::Connected(master) => Ok(master.clone()),
            MasterStatus::Disconnected { error, .. } => Err(not_sent(what, error)),
        }
    }

    pub(super) async fn wait_for_master(&self) -> MasterConnection {
        let mut state = self.state.subscribe();
        loop {
            if let MasterStatus::Connected(master) = &state.borrow_and_update().status {
                return master.clone();
            }
            if state.changed().await.is_err() {
                // Impossible: the sender is a field of self.
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) async fn connection_lost(&self, generation: u64) {
        let is_lost = |state: &MasterState| match &state.status {
            MasterStatus::Connected(master) => master.generation != generation,
            MasterStatus::Disconnected { .. } => true,
        };
        drop(self.state.subscribe().wait_for(is_lost).await);
    }

    pub(super) async fn term_ended(&self, term: u64) {
        drop(self.state.subscribe().wait_for(|state| state.term != term).await);
    }

    pub(super) fn is_current_term(&self, term: u64) -> bool {
        self.state.borrow().term == term
    }

    pub(super) fn set_connected(&self, connection: LinkConnection, address: Address) -> MasterConnection {
        let mut connected = None;
        self.state.send_modify(|state| {
            state.generation += 1;
            if state.master.as_ref() != Some(&address) {
                state.term += 1;
                state.master = Some(address.clone());
            }
            let (generation, term) = (state.generation, state.term);
            let master = MasterConnection { connection, address, generation, term };
            tracing::info!(master = %master.address, generation, "connected to Redis");
            self.health
                .send_replace(LinkHealth::Connected { master: master.address.to_string(), generation });
            connected = Some(master.clone());
            state.status = MasterStatus::Connected(master);
        });
        connected.expect("send_modify runs its closure exactly once, at once")
    }

    /// Logs the first failure, and the first that needs an operator.
    pub(super) fn record_connect_failure(&self, new: StoreError) {
        self.state.send_modify(|state| {
            let MasterStatus::Disconnected { since, error, is_logged } = &mut state.status else { return };
            if *is_logged && (!new.needs_operator() || error.needs_operator()) {
                tracing::debug!(error = %new, "Redis is still unavailable");
            } else {
                tracing::warn!(error = %new, "Redis is unavailable; retrying");
            }
            self.health.send_replace(LinkHealth::Disconnected { since: *since, why: new.to_string() });
            *error = new;
            *is_logged = true;
        });
    }

    pub(super) fn handle_shared_fault(&self, generation: u64, fault: &LinkFault) {
        match fault.action {
            ConnectionAction::Keep => {}
            ConnectionAction::Recheck => self.request_check(),
            ConnectionAction::Reconnect | ConnectionAction::NewMaster => {
                self.disconnect_if(fault, |master| master.generation == generation);
            }
        }
    }

    /// The shared connection may be intact.
    pub(super) fn handle_dedicated_fault(&self, term: u64, fault: &LinkFault) {
        match fault.action {
            ConnectionAction::Keep => {}
            ConnectionAction::Recheck | ConnectionAction::Reconnect => self.request_check(),
            ConnectionAction::NewMaster => self.disconnect_if(fault, |master| master.term == term),
        }
    }

    fn disconnect_if(&self, fault: &LinkFault, is_affected: impl Fn(&MasterConnection) -> bool) {
        self.state.send_if_modified(|state| {
            let MasterStatus::Connected(master) = &state.status else { return false };
            if !is_affected(master) {
                return false;
            }
            let error = &fault.error;
            let generation = master.generation;
            tracing::warn!(master = %master.address, generation, %error, "lost the connection to Redis");
            if fault.action == ConnectionAction::NewMaster {
                state.term += 1;
                state.master = None;
            }
            let since = Instant::now();
            self.health.send_replace(LinkHealth::Disconnected { since, why: error.to_string() });
            state.status = MasterStatus::Disconnected { since, error: error.clone(), is_logged: true };
            true
        });
    }

    pub(super) fn request_check(&self) {
        self.check_requested.notify_one();
    }

    pub(super) async fn check_requested(&self) {
        self.check_requested.notified().await;
    }

    pub(super) fn record_attached(&self, replicas: BTreeSet<String>, behind: usize) -> ConfirmTarget {
        self.replicas.lock().record_attached(Instant::now(), replicas, behind)
    }

    pub(super) fn record_sentinel_view(&self, view: SentinelView) {
        self.replicas.lock().record_sentinel_view(view);
    }

    pub(super) fn required_replicas(&self) -> usize {
        self.replicas.lock().required(Instant::now())
    }
}

fn not_sent(what: &str, error: &StoreError) -> StoreError {
    let why = match error {
        StoreError::Unreachable { why, .. } => why.clone(),
        StoreError::Timeout { what: earlier } => {
            format!("it did not answer {earlier} and does not answer now")
        }
        StoreError::NotMaster
        | StoreError::Replica { .. }
        | StoreError::WritesPaused { .. }
        | StoreError::Refused(_)
        | StoreError::WrongType { .. }
        | StoreError::Corrupt { .. } => return error.clone(),
    };
    StoreError::Unreachable { what: what.into(), why }
}
