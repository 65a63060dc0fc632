//! Everything that processes have requested from outside and that was not executed yet: Redis commands and
//! calls of container engines. Nothing is executed before the simulator picks it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use ::redis::Value;
use common::store::{MessageHandler, RedisCommand, Transport, TransportConnection};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use worker::runtime::{ContainerRequest, RuntimeError};

use super::host::EngineReply;
use super::process_id::ProcessId;

/// Commands that were sent together over one connection.
pub(super) struct RedisRequest {
    pub(super) process: ProcessId,
    /// Its connection: requests of one connection are executed in order.
    pub(super) connection: u64,
    pub(super) commands: Vec<RedisCommand>,
    pub(super) reply: oneshot::Sender<io::Result<Vec<Value>>>,
    pub(super) sent_at: u64,
    /// It does not reach Redis before this time.
    pub(super) delayed_until: u64,
    /// Whether its sender has mistyped the number of the database.
    pub(super) is_elsewhere: bool,
    /// Whether its sender gave it up or died. It reaches Redis nevertheless, and its reply is dropped.
    pub(super) is_abandoned: bool,
}

/// A call of a host's container engine.
pub(super) struct EngineRequest {
    pub(super) process: ProcessId,
    pub(super) call: EngineCall,
    pub(super) reply: oneshot::Sender<Result<EngineReply, RuntimeError>>,
    pub(super) sent_at: u64,
    /// It does not take effect before this time.
    pub(super) delayed_until: u64,
}

/// The calls that an engine knows.
#[derive(Debug, Clone)]
pub(super) enum EngineCall {
    Ping,
    List,
    Image(String),
    Run(Box<ContainerRequest>),
    Restart(String),
    /// With the grace period in milliseconds.
    Stop(String, u64),
    /// Stops a container and keeps it.
    Halt(String),
}

/// A subscription to hints.
pub(super) struct Subscriber {
    /// The process instance that subscribed.
    pub(super) instance: u64,
    pub(super) handler: MessageHandler,
}

#[derive(Default)]
pub(super) struct Bus {
    pub(super) now: u64,
    pub(super) redis_requests: Vec<RedisRequest>,
    pub(super) engine_requests: Vec<EngineRequest>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) broken_connections: Vec<u64>,
    /// How many requests were ever made. While it does not change, no process is requesting anything.
    pub(super) request_count: u64,
    connection_count: u64,
}

impl Bus {
    /// Marks every connection as broken.
    pub(super) fn break_all_connections(&mut self) {
        self.broken_connections = (0..=self.connection_count).collect();
    }
}

/// The bus, shared by all processes and the simulator.
#[derive(Clone, Default)]
pub(super) struct SharedBus(Arc<Mutex<Bus>>);

impl SharedBus {
    pub(super) fn lock(&self) -> MutexGuard<'_, Bus> {
        self.0.lock().unwrap()
    }

    /// Requests a call of the engine on the process' host.
    pub(super) fn call_engine(
        &self,
        process: ProcessId,
        call: EngineCall,
    ) -> oneshot::Receiver<Result<EngineReply, RuntimeError>> {
        let (reply, receiver) = oneshot::channel();
        let mut bus = self.lock();
        bus.request_count += 1;
        let now = bus.now;
        bus.engine_requests.push(EngineRequest { process, call, reply, sent_at: now, delayed_until: now });
        receiver
    }
}

/// The network as one process instance sees it.
pub(super) struct SimulatedNetwork {
    pub(super) bus: SharedBus,
    pub(super) process: ProcessId,
    pub(super) instance: u64,
    /// Whether the process has mistyped the number of the database.
    pub(super) is_elsewhere: bool,
}

impl Transport for SimulatedNetwork {
    fn open(&self) -> Arc<dyn TransportConnection> {
        let mut bus = self.bus.lock();
        bus.connection_count += 1;
        let id = bus.connection_count;
        let (bus, is_elsewhere) = (self.bus.clone(), self.is_elsewhere);
        Arc::new(SimulatedConnection { bus, process: self.process, is_elsewhere, id })
    }

    fn listen(&self, handler: MessageHandler) {
        self.bus.lock().subscribers.push(Subscriber { instance: self.instance, handler });
    }
}

struct SimulatedConnection {
    bus: SharedBus,
    process: ProcessId,
    is_elsewhere: bool,
    id: u64,
}

impl TransportConnection for SimulatedConnection {
    fn send(&self, commands: Vec<RedisCommand>) -> BoxFuture<'static, io::Result<Vec<Value>>> {
        let (reply, receiver) = oneshot::channel();
        let mut bus = self.bus.lock();
        if bus.broken_connections.contains(&self.id) {
            drop(reply);
        } else {
            bus.request_count += 1;
            let now = bus.now;
            bus.redis_requests.push(RedisRequest {
                process: self.process,
                connection: self.id,
                commands,
                reply,
                sent_at: now,
                delayed_until: now,
                is_elsewhere: self.is_elsewhere,
                is_abandoned: false,
            });
        }
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())) })
    }
}
