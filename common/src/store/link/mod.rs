//! The connection to Redis: which server is the master, how to reach it, and what to do when it goes away.
//!
//! - Commands that do not block share one connection, over which they are pipelined ([`Link`]).
//! - A loop of blocking commands has a connection of its own ([`Dedicated`]).
//! - Writes that have to survive a failover wait for the replicas ([`Link::durable_script`]).
//! - Wake-ups come over one connection more ([`Subscription`]).
//!
//! One task per link, the keeper, connects; whoever needs a connection meanwhile waits a bounded time and then gets
//! [`StoreError::Unreachable`]. Nothing here repeats a command whose reply was lost: only the caller knows whether
//! that is safe. Values are bytes; nothing is read as text on the way.

mod backoff;
mod dedicated;
mod dial;
mod durable;
mod fault;
mod hub;
mod keeper;
mod replicas;
mod sentinel;
mod state;
mod url;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::error::StoreError;
use super::scripts::Call;
use crate::failpoint::{self, Side};
pub(crate) use dedicated::Dedicated;
use dial::Dialer;
use durable::Durable;
use fault::{Cure, Fault};
use hub::Hub;
pub use hub::Subscription;
use state::{Shared, Up};
pub use url::{RedisUrl, UrlError};
pub use wire::{Ear, Line, Wire, Words};

/// The store's failpoints: every script and command, before it is sent and when its reply is there.
const SEAM: &str = "redis";

/// How long a link waits.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// For the answer to a command that does not block.
    pub response_timeout: Duration,
    /// For a connection to one server; and a command that finds no connection, for there to be one.
    pub connect_timeout: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { response_timeout: Duration::from_secs(5), connect_timeout: Duration::from_secs(2) }
    }
}

/// Whether there is a master to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkHealth {
    /// There is.
    Connected {
        /// Its address.
        master: String,
        /// Counts the connections made so far: another number is another connection.
        generation: u64,
    },
    /// There is none right now.
    Away {
        /// Since when.
        since: Instant,
        /// The latest reason, in words.
        why: String,
    },
}

/// What is known of a write after waiting for the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every replica that might become the master has it: it survives a failover.
    Confirmed {
        /// Replicas that have it.
        replicas: usize,
    },
    /// The master has it, but not all replicas said in time that they do.
    Unconfirmed {
        /// Replicas that have it.
        confirmed: usize,
        /// Replicas that should have it (0 when the master could not even be asked).
        known: usize,
    },
    /// There are no replicas.
    SingleMachine,
}

/// A handle on the connection to the master. Cheap to clone; when the last clone goes, so do the connections.
///
/// Has to be used within a Tokio runtime.
#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    url: RedisUrl,
    shared: Arc<Shared>,
    durable: Durable,
    hub: Arc<Hub>,
    keeper: OnceLock<AbortOnDropHandle<()>>,
    listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Link {
    /// A link to the Redis behind `url`. It connects when it is used for the first time.
    pub(crate) fn new(url: RedisUrl, options: LinkOptions) -> Self {
        Self::over(None, url, options)
    }

    /// The same, with commands carried by `wire` where there is one.
    pub(crate) fn over(wire: Option<Arc<dyn Wire>>, url: RedisUrl, options: LinkOptions) -> Self {
        let LinkOptions { response_timeout, connect_timeout } = options;
        let hub = Arc::<Hub>::default();
        if let Some(wire) = &wire {
            wire.listen(hub.ear());
        }
        let mut dialer = Dialer::new(&url, connect_timeout);
        dialer.wire = wire;
        let shared = Arc::new(Shared::new(dialer, response_timeout, connect_timeout));
        let durable = Durable::new(shared.clone());
        Self {
            inner: Arc::new(Inner {
                url,
                shared,
                durable,
                hub,
                keeper: OnceLock::new(),
                listener: OnceLock::new(),
            }),
        }
    }

    /// Runs one command that does not block.
    ///
    /// # Errors
    /// See [`StoreError`]; within the response and the connect timeout together.
    pub(crate) async fn query<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, StoreError> {
        let what = name_of(cmd);
        let mut up = self.up(&what).await?;
        failpoint::pass(SEAM, &what, Side::Before);
        let reply = cmd.query_async(&mut up.connection).await;
        failpoint::pass(SEAM, &what, Side::After);
        self.judged(&what, &up, reply)
    }

    /// Sends several commands in one go, see [`Link::query`]. Not a transaction unless `pipe` was made one.
    pub(crate) async fn pipeline<T: FromRedisValue>(&self, pipe: &Pipeline) -> Result<T, StoreError> {
        let what = pipe.cmd_iter().next().map(name_of).unwrap_or_default();
        let mut up = self.up(&what).await?;
        failpoint::pass(SEAM, &what, Side::Before);
        let reply = pipe.query_async(&mut up.connection).await;
        failpoint::pass(SEAM, &what, Side::After);
        self.judged(&what, &up, reply)
    }

    /// Runs a script by its hash. When Redis does not know it (it was restarted, or flushed), nothing was executed:
    /// it is given the text and asked again.
    pub(crate) async fn script(&self, call: &Call<'_>) -> Result<Value, StoreError> {
        let what = call.name();
        let mut up = self.up(what).await?;
        // Up to three commands, which together have the time of one.
        let limit = self.inner.shared.response_timeout;
        failpoint::pass(SEAM, what, Side::Before);
        let reply = timeout(limit, call.invoke_async(&mut up.connection)).await;
        failpoint::pass(SEAM, what, Side::After);
        match reply {
            Ok(reply) => self.judged(what, &up, reply),
            Err(_) => {
                let error = StoreError::Timeout { what: what.into() };
                self.inner.shared.act(up.generation, &Fault { error: error.clone(), cure: Cure::Reconnect });
                Err(error)
            }
        }
    }

    /// A connection of its own for one loop of blocking commands. `response_timeout` is to be a good deal longer than
    /// the longest block: what Redis pops for a connection that has given up waiting is stranded.
    pub(crate) async fn dedicated(&self, response_timeout: Duration) -> Result<Dedicated, StoreError> {
        self.start();
        Dedicated::open(self.inner.shared.clone(), response_timeout).await
    }

    /// Runs a script as [`Link::script`] does and then waits, at most `wait`, until all replicas have what it wrote that
    /// might become the master. Once the script has been executed this does not fail any more; it may be `Unconfirmed`.
    pub(crate) async fn durable_script(
        &self,
        call: &Call<'_>,
        wait: Duration,
    ) -> Result<(Value, Durability), StoreError> {
        let (reply, _, durability) = self.durable_scripts(call, None, wait).await?;
        Ok((reply, durability))
    }

    /// The same with another script right behind it, before anything is waited for; its reply unless it failed.
    pub(crate) async fn durable_scripts(
        &self,
        call: &Call<'_>,
        also: Option<&Call<'_>>,
        wait: Duration,
    ) -> Result<(Value, Option<Value>, Durability), StoreError> {
        self.start();
        self.inner.durable.script(call, also, wait).await
    }

    /// Whether there is a master to talk to, now and from now on.
    pub(crate) fn health(&self) -> watch::Receiver<LinkHealth> {
        self.start();
        self.inner.shared.health()
    }

    /// Listens to `channel` until the subscription is dropped. What it hears are hints, see [`Subscription::next`].
    pub(crate) fn subscribe(&self, channel: &str) -> Subscription {
        self.start();
        if self.inner.shared.dialer.wire.is_none() {
            self.inner.listener.get_or_init(|| {
                let (hub, shared) = (self.inner.hub.clone(), self.inner.shared.clone());
                AbortOnDropHandle::new(tokio::spawn(async move { hub.run(&shared).await }))
            });
        }
        self.inner.hub.subscribe(channel, self.clone())
    }

    async fn up(&self, what: &str) -> Result<Up, StoreError> {
        self.start();
        self.inner.shared.up(what).await
    }

    fn start(&self) {
        self.inner.keeper.get_or_init(|| {
            let (shared, place) = (self.inner.shared.clone(), self.inner.url.place.clone());
            AbortOnDropHandle::new(tokio::spawn(async move { keeper::keep(&shared, place).await }))
        });
    }

    fn judged<T>(&self, what: &str, up: &Up, reply: Result<T, RedisError>) -> Result<T, StoreError> {
        reply.map_err(|error| {
            let fault = Fault::of(what, &error);
            self.inner.shared.act(up.generation, &fault);
            fault.error
        })
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("url", &self.inner.url).finish_non_exhaustive()
    }
}

/// The name of a command; its arguments can hold secrets and are never shown.
fn name_of(cmd: &Cmd) -> String {
    match cmd.args_iter().next() {
        Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    }
}
