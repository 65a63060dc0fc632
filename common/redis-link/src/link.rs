//! The interface of the link.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::call::{BOUNDARY, ScriptCall, command_name};
use crate::connection_manager;
use crate::dedicated::DedicatedConnection;
use crate::dial::RedisDialer;
use crate::durability::Durability;
use crate::durable::DurableWriter;
use crate::error::StoreError;
use crate::fault::{ConnectionAction, LinkFault};
use crate::health::LinkHealth;
use crate::hub::{Hub, Subscription};
use crate::sentinel::Sentinels;
use crate::sentinel_report::SentinelReport;
use crate::state::{MasterConnection, SharedState};
use crate::transport::Transport;
use daemon::failpoint::{self, Side};
use daemon::redis_url::{RedisEndpoint, RedisUrl};

#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// For commands that do not block.
    pub response_timeout: Duration,
    /// Also of the wait for a connection.
    pub connect_timeout: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { response_timeout: Duration::from_secs(5), connect_timeout: Duration::from_secs(2) }
    }
}

/// Cheap to clone; the connections close with the last clone. Needs a Tokio runtime.
#[derive(Clone)]
pub struct Link {
    inner: Arc<LinkInner>,
}

struct LinkInner {
    url: RedisUrl,
    shared: Arc<SharedState>,
    durable: DurableWriter,
    inspected_sentinels: Option<Mutex<Sentinels>>,
    hub: Arc<Hub>,
    connection_manager: OnceLock<AbortOnDropHandle<()>>,
    listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Link {
    /// Connects on first use.
    pub fn new(url: RedisUrl, options: LinkOptions) -> Self {
        Self::build(None, url, options)
    }

    pub fn with_transport(transport: Arc<dyn Transport>, url: RedisUrl, options: LinkOptions) -> Self {
        Self::build(Some(transport), url, options)
    }

    fn build(transport: Option<Arc<dyn Transport>>, url: RedisUrl, options: LinkOptions) -> Self {
        let LinkOptions { response_timeout, connect_timeout } = options;
        let hub = Arc::<Hub>::default();
        if let Some(transport) = &transport {
            transport.listen(hub.message_handler());
        }
        let dialer = RedisDialer::new(&url, connect_timeout, transport);
        let shared = Arc::new(SharedState::new(dialer, response_timeout, connect_timeout));
        let durable = DurableWriter::new(shared.clone());
        let inspected_sentinels = match &url.endpoint {
            RedisEndpoint::Sentinel { peers, name } => {
                Some(Mutex::new(Sentinels::new(name.clone(), peers.clone())))
            }
            RedisEndpoint::Tcp(_) | RedisEndpoint::Unix(_) => None,
        };
        Self {
            inner: Arc::new(LinkInner {
                url,
                shared,
                durable,
                inspected_sentinels,
                hub,
                connection_manager: OnceLock::new(),
                listener: OnceLock::new(),
            }),
        }
    }

    pub fn database(&self) -> u32 {
        self.inner.url.db
    }

    /// `cmd` must not block. Takes at most the response timeout plus the connect timeout.
    pub async fn query<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, StoreError> {
        let what = command_name(cmd);
        let mut master = self.master(&what).await?;
        failpoint::check(BOUNDARY, &what, Side::Before);
        let reply = cmd.query_async(&mut master.connection).await;
        failpoint::check(BOUNDARY, &what, Side::After);
        self.handle_reply(&what, &master, reply)
    }

    /// A transaction only if `pipe` is one.
    pub async fn pipeline<T: FromRedisValue>(&self, pipe: &Pipeline) -> Result<T, StoreError> {
        let what = pipe.cmd_iter().next().map(command_name).unwrap_or_default();
        let mut master = self.master(&what).await?;
        failpoint::check(BOUNDARY, &what, Side::Before);
        let reply = pipe.query_async(&mut master.connection).await;
        failpoint::check(BOUNDARY, &what, Side::After);
        self.handle_reply(&what, &master, reply)
    }

    /// A refused command does not affect the others. Fails only with [transient](StoreError::is_transient)
    /// errors.
    pub async fn pipeline_each(
        &self,
        mut pipe: Pipeline,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let what = pipe.cmd_iter().next().map(command_name).unwrap_or_default();
        let mut master = self.master(&what).await?;
        failpoint::check(BOUNDARY, &what, Side::Before);
        let replies = pipe.ignore_errors().query_async(&mut master.connection).await;
        failpoint::check(BOUNDARY, &what, Side::After);
        let replies: Vec<Result<Value, RedisError>> = self.handle_reply(&what, &master, replies)?;
        let mut each = Vec::with_capacity(replies.len());
        for reply in replies {
            match self.handle_reply(&what, &master, reply) {
                Err(error) if error.is_transient() => return Err(error),
                reply => each.push(reply),
            }
        }
        Ok(each)
    }

    /// If Redis does not know the script (after a restart or SCRIPT FLUSH), nothing was executed: loads it
    /// and runs it again.
    pub async fn script(&self, call: &ScriptCall<'_>) -> Result<Value, StoreError> {
        let what = call.name();
        let mut master = self.master(what).await?;
        let limit = self.inner.shared.response_timeout;
        failpoint::check(BOUNDARY, what, Side::Before);
        let reply = timeout(limit, call.invoke_async(&mut master.connection)).await;
        failpoint::check(BOUNDARY, what, Side::After);
        match reply {
            Ok(reply) => self.handle_reply(what, &master, reply),
            Err(_) => {
                let error = StoreError::Timeout { what: what.into() };
                let fault = LinkFault { error, action: ConnectionAction::Reconnect };
                self.inner.shared.handle_shared_fault(master.generation, &fault);
                Err(fault.error)
            }
        }
    }

    /// `response_timeout` must be several seconds longer than the longest block: if it ends first, a popped
    /// element is lost.
    pub async fn dedicated(&self, response_timeout: Duration) -> Result<DedicatedConnection, StoreError> {
        self.ensure_started();
        DedicatedConnection::open(self.inner.shared.clone(), response_timeout).await
    }

    /// Waits for the replicas, at most for `wait`. After the script, failures only make the durability
    /// `Unconfirmed`.
    pub async fn durable_script(
        &self,
        call: &ScriptCall<'_>,
        wait: Duration,
    ) -> Result<(Value, Durability), StoreError> {
        let (reply, _, durability) = self.durable_scripts(call, None, wait).await?;
        Ok((reply, durability))
    }

    /// Both scripts take one round trip. The second reply is `None` if that script failed.
    pub async fn durable_scripts(
        &self,
        call: &ScriptCall<'_>,
        also: Option<&ScriptCall<'_>>,
        wait: Duration,
    ) -> Result<(Value, Option<Value>, Durability), StoreError> {
        self.ensure_started();
        self.inner.durable.run(call, also, wait).await
    }

    /// Takes some seconds; empty without Sentinels.
    pub async fn inspect_sentinels(&self) -> Vec<SentinelReport> {
        match &self.inner.inspected_sentinels {
            Some(sentinels) => sentinels.lock().await.inspect(&self.inner.shared.dialer).await,
            None => Vec::new(),
        }
    }

    pub fn health(&self) -> watch::Receiver<LinkHealth> {
        self.ensure_started();
        self.inner.shared.health()
    }

    /// Messages are hints only.
    pub fn subscribe(&self, channel: &str) -> Subscription {
        self.ensure_started();
        // A transport delivers messages to the hub on its own.
        if self.inner.shared.dialer.transport.is_none() {
            self.inner.listener.get_or_init(|| {
                let (hub, shared) = (self.inner.hub.clone(), self.inner.shared.clone());
                AbortOnDropHandle::new(tokio::spawn(async move { hub.run(&shared).await }))
            });
        }
        self.inner.hub.subscribe(channel, self.inner.clone())
    }

    async fn master(&self, what: &str) -> Result<MasterConnection, StoreError> {
        self.ensure_started();
        self.inner.shared.master(what).await
    }

    fn ensure_started(&self) {
        self.inner.connection_manager.get_or_init(|| {
            let (shared, endpoint) = (self.inner.shared.clone(), self.inner.url.endpoint.clone());
            AbortOnDropHandle::new(tokio::spawn(
                async move { connection_manager::run(&shared, endpoint).await },
            ))
        });
    }

    fn handle_reply<T>(
        &self,
        what: &str,
        master: &MasterConnection,
        reply: Result<T, RedisError>,
    ) -> Result<T, StoreError> {
        reply.map_err(|error| {
            let fault = LinkFault::of(what, &error);
            self.inner.shared.handle_shared_fault(master.generation, &fault);
            fault.error
        })
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("url", &self.inner.url).finish_non_exhaustive()
    }
}
