//! Writes of desired state: a script, then WAIT for the replicas.
//!
//! WAIT covers earlier writes *on the same connection*, so durable writes have a pool of their own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_redis::{Hook, HookError, Pool, PoolError, Runtime, Timeouts};
use parking_lot::Mutex;
use redis::Value;
use tokio::time::timeout;

use super::dedicated::DedicatedConnection;
use super::dial::{Address, TlsFiles, require_master};
use super::durability::Durability;
use super::fault::{ConnectionAction, LinkFault};
use super::replicas::ConfirmTarget;
use super::state::{MasterConnection, SharedState};
use super::transport::LinkConnection;
use crate::attached::attached_replicas;
use crate::call::ScriptCall;
use crate::error::StoreError;

/// Users of the API write, not queues.
const MAX_CONNECTIONS: usize = 16;

pub(super) struct DurableWriter {
    shared: Arc<SharedState>,
    current: Mutex<Option<MasterPool>>,
}

/// For one master and certificate.
struct MasterPool {
    pool: Pool,
    term: u64,
    tls: TlsFiles,
}

impl DurableWriter {
    pub(super) fn new(shared: Arc<SharedState>) -> Self {
        Self { shared, current: Mutex::default() }
    }

    /// Fails only if the first script does: later the write is done.
    pub(super) async fn run(
        &self,
        call: &ScriptCall<'_>,
        also: Option<&ScriptCall<'_>>,
        wait: Duration,
    ) -> Result<(Value, Option<Value>, Durability), StoreError> {
        let mut lease = self.lease_connection().await?;
        let mut info = redis::cmd("INFO");
        info.arg("replication");
        let (value, also, info) = lease.connection.script_and_query::<Vec<u8>>(call, also, &info).await?;
        let attached = info.map(|info| {
            let replicas = attached_replicas(&String::from_utf8_lossy(&info));
            let behind = replicas.iter().filter(|replica| replica.is_behind).count();
            (replicas.into_iter().map(|replica| replica.address).collect(), behind)
        });
        Ok((value, also, self.wait_for_replicas(&mut lease.connection, attached, wait).await))
    }

    /// The second part is the number of those behind.
    async fn wait_for_replicas(
        &self,
        connection: &mut DedicatedConnection,
        attached: Option<(BTreeSet<String>, usize)>,
        wait: Duration,
    ) -> Durability {
        let unconfirmed = |confirmed, known| Durability::Unconfirmed { confirmed, known };
        let Some((attached, behind)) = attached else {
            return unconfirmed(0, self.shared.required_replicas());
        };
        let ConfirmTarget { required, expected } = self.shared.record_attached(attached, behind);
        if required == 0 {
            return Durability::SingleMachine;
        }
        let mut command = redis::cmd("WAIT");
        // 0 would mean no limit.
        command.arg(expected).arg(wait.as_millis().max(1) as u64);
        match connection.query_blocking::<usize>(&command, wait).await {
            Ok(replicas) if replicas >= required => Durability::Confirmed { replicas },
            Ok(confirmed) => unconfirmed(confirmed, required),
            Err(_) => unconfirmed(0, required),
        }
    }

    async fn lease_connection(&self) -> Result<Checkout, StoreError> {
        let response_timeout = self.shared.response_timeout;
        if self.shared.dialer.transport.is_some() {
            // deadpool-redis only pools connections of the redis crate.
            let connection = DedicatedConnection::open(self.shared.clone(), response_timeout).await?;
            return Ok(Checkout { connection, pooled: None });
        }
        let deadline = Instant::now() + response_timeout;
        loop {
            let master = self.shared.master("connect").await?;
            let pool = self.pool_for(&master).await?;
            let wait = Some(deadline.saturating_duration_since(Instant::now()));
            let timeouts = Timeouts { wait, ..pool.timeouts() };
            let checked_out = tokio::select! {
                checked_out = pool.timeout_get(&timeouts) => checked_out,
                // Another master: retry with its pool.
                () = self.shared.term_ended(master.term) => continue,
            };
            match checked_out {
                Ok(pooled) => {
                    let connection = DedicatedConnection::new(
                        self.shared.clone(),
                        master.term,
                        response_timeout,
                        LinkConnection::Redis((*pooled).clone()),
                    );
                    return Ok(Checkout { connection, pooled: Some(pooled) });
                }
                Err(PoolError::Closed) => {}
                Err(error) => {
                    let fault = self.explain(&master.address, error);
                    self.shared.handle_dedicated_fault(master.term, &fault);
                    return Err(fault.error);
                }
            }
        }
    }

    async fn pool_for(&self, master: &MasterConnection) -> Result<Pool, StoreError> {
        let tls = self.shared.dialer.read_tls_files().await;
        let mut current = self.current.lock();
        if let Some(current) = &*current {
            if current.term > master.term {
                return Err(StoreError::NotMaster);
            }
            // An unreadable file changes nothing.
            let is_changed = tls.as_ref().is_ok_and(|tls| *tls != current.tls);
            if current.term == master.term && !is_changed {
                return Ok(current.pool.clone());
            }
        }
        let tls = tls.map_err(|fault| fault.error)?;
        let pool = self.new_pool(&master.address, tls.clone()).map_err(|fault| fault.error)?;
        let replaced = current.replace(MasterPool { pool: pool.clone(), term: master.term, tls });
        if let Some(replaced) = replaced {
            replaced.pool.close();
        }
        Ok(pool)
    }

    fn new_pool(&self, address: &Address, tls: TlsFiles) -> Result<Pool, LinkFault> {
        let SharedState { dialer, response_timeout, connect_timeout, .. } = &*self.shared;
        let manager = dialer.pool_manager(address, tls, *response_timeout)?;
        let timeouts = Timeouts {
            // The redis crate limits it.
            create: None,
            // A PING on a dead connection would take a whole response timeout.
            recycle: Some(*connect_timeout),
            wait: Some(*response_timeout),
        };
        let limit = *connect_timeout;
        let is_master = Hook::async_fn(move |connection, _| {
            Box::pin(async move {
                match timeout(limit, require_master(connection)).await {
                    Ok(checked) => checked.map_err(HookError::Backend),
                    Err(_) => Err(HookError::message("no answer to ROLE")),
                }
            })
        });
        let pool = Pool::builder(manager)
            .max_size(MAX_CONNECTIONS)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .post_create(is_master)
            .build()
            .expect("a pool with timeouts and a runtime is always built");
        Ok(pool)
    }

    fn explain(&self, address: &Address, error: PoolError) -> LinkFault {
        let dialer = &self.shared.dialer;
        match error {
            PoolError::Backend(error) => dialer.not_connected(address, &error),
            PoolError::PostCreateHook(HookError::Backend(error)) => LinkFault::of("ROLE", &error),
            PoolError::PostCreateHook(HookError::Message(_)) => dialer.no_answer_to_role(address),
            PoolError::Timeout(_) => LinkFault {
                error: StoreError::Timeout { what: "a free connection for a durable write".into() },
                action: ConnectionAction::Keep,
            },
            other => LinkFault::lost("connect", other.to_string()),
        }
    }
}

/// Returns to its pool only if all commands succeeded: after an error or a dropped future, a WAIT that still
/// runs would delay the next write.
struct Checkout {
    connection: DedicatedConnection,
    pooled: Option<deadpool_redis::Connection>,
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let Some(pooled) = self.pooled.take() else { return };
        if !self.connection.is_usable() {
            drop(deadpool_redis::Connection::take(pooled));
        }
    }
}
