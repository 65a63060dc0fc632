//! Writes of desired state: done, and then waited for until every replica has them that might become the master.
//!
//! WAIT speaks of what was written before it *on the same connection*, so these writes have connections of their own:
//! a few, shared by a pool.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, Metrics, Pool, PoolError, RecycleError, RecycleResult, Timeouts};
use redis::Value;

use super::super::error::StoreError;
use super::super::scripts::Call;
use super::Durability;
use super::dedicated::Dedicated;
use super::fault::Fault;
use super::replicas::Reach;
use super::state::Shared;

/// Durable writes at the same time, each of which waits for the replicas. They come from people and the API, not from queues.
const CONNECTIONS: usize = 16;
/// A connection that rested for longer is asked whether it still works before a write is entrusted to it.
const RESTED: Duration = Duration::from_secs(1);

/// The pool.
pub(super) struct Durable {
    shared: Arc<Shared>,
    pool: Pool<Opener>,
}

struct Opener {
    shared: Arc<Shared>,
}

impl managed::Manager for Opener {
    type Type = Dedicated;
    type Error = StoreError;

    async fn create(&self) -> Result<Dedicated, StoreError> {
        Dedicated::open(self.shared.clone(), self.shared.response_timeout).await
    }

    async fn recycle(&self, connection: &mut Dedicated, metrics: &Metrics) -> RecycleResult<StoreError> {
        if !connection.is_usable() {
            return Err(RecycleError::message("given up"));
        }
        if metrics.last_used() > RESTED {
            connection.query::<Value>(&redis::cmd("PING")).await.map_err(RecycleError::Backend)?;
        }
        Ok(())
    }
}

impl Durable {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let timeouts = Timeouts {
            wait: Some(shared.response_timeout),
            create: None,
            // A connection that is cut off would otherwise use up the time of a whole response.
            recycle: Some(shared.connect_timeout),
        };
        let pool = Pool::builder(Opener { shared: shared.clone() })
            .max_size(CONNECTIONS)
            .timeouts(timeouts)
            .runtime(deadpool::Runtime::Tokio1)
            .build()
            .expect("a pool builds when its timeouts come with a runtime, and they do");
        Self { shared, pool }
    }

    /// Runs the script, perhaps another one in the same breath, then waits at most `wait` for the replicas.
    ///
    /// # Errors
    /// Those of the first script. What goes wrong after it is no error (it was done): no answer of the other one, or
    /// `Unconfirmed`.
    pub(super) async fn script(
        &self,
        call: &Call<'_>,
        also: Option<&Call<'_>>,
        wait: Duration,
    ) -> Result<(Value, Option<Value>, Durability), StoreError> {
        let mut connection = self.pool.get().await.map_err(not_got)?;
        // Who is attached to the master right now.
        let mut info = redis::cmd("INFO");
        info.arg("replication");
        let (value, also, info) = connection.script_and::<Vec<u8>>(call, also, &info).await?;
        let attached = info.map(|info| read_attached(&String::from_utf8_lossy(&info)));
        Ok((value, also, self.confirm(&mut connection, attached, wait).await))
    }

    /// Waits for the replicas; `attached` is none when the master could not be asked for them.
    async fn confirm(
        &self,
        connection: &mut Dedicated,
        attached: Option<BTreeSet<String>>,
        wait: Duration,
    ) -> Durability {
        let unconfirmed = |confirmed, known| Durability::Unconfirmed { confirmed, known };
        let Some(attached) = attached else {
            return unconfirmed(0, self.shared.known_replicas());
        };
        let Reach { known, expected } = self.shared.note_attached(attached);
        if known == 0 {
            return Durability::SingleMachine;
        }
        let mut command = redis::cmd("WAIT");
        // With a limit of 0 it would wait for ever.
        command.arg(expected).arg(wait.as_millis().max(1) as u64);
        match connection.query_for::<usize>(&command, wait).await {
            Ok(replicas) if replicas >= known => Durability::Confirmed { replicas },
            Ok(confirmed) => unconfirmed(confirmed, known),
            Err(_) => unconfirmed(0, known),
        }
    }
}

/// `slave0:ip=10.0.0.2,port=6379,state=online,…` is `10.0.0.2:6379`, as the sentinels name it.
fn read_attached(info: &str) -> BTreeSet<String> {
    let address = |line: &str| {
        let (_, facts) = line.strip_prefix("slave")?.split_once(":ip=")?;
        let (ip, rest) = facts.split_once(",port=")?;
        Some(format!("{ip}:{}", rest.split(',').next()?.trim()))
    };
    info.lines().filter_map(address).collect()
}

fn not_got(error: PoolError<StoreError>) -> StoreError {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(_) => StoreError::Timeout { what: "a free connection for a durable write".into() },
        other => Fault::lost("connect", other.to_string()).error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_who_is_attached() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
            slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0\r\n\
            slave1:ip=fd00::3,port=6380,state=wait_bgsave,offset=0,lag=1\r\n\
            slave_read_repl_offset:3\r\nmaster_replid:abc\r\n";
        let expected = ["10.0.0.2:6379", "fd00::3:6380"].map(str::to_owned).into();
        assert_eq!(read_attached(info), expected);
    }
}
