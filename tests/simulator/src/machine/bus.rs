//! Requests that are not executed yet: Redis commands and calls of container engines.

use std::io;
use std::sync::Arc;

use ::redis::Value;
use engine::{Container, ContainerRequest, RuntimeError};
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use store::{MessageHandler, RedisCommand, Transport, TransportConnection};
use tokio::sync::oneshot;

use crate::machine::process_id::ProcessId;

pub(crate) struct RedisRequest {
    pub(crate) process: ProcessId,
    pub(crate) connection: u64,
    pub(crate) commands: Vec<RedisCommand>,
    pub(crate) reply: oneshot::Sender<io::Result<Vec<Value>>>,
    pub(crate) sent_at: u64,
    pub(crate) delayed_until: u64,
    pub(crate) is_elsewhere: bool,
    /// It still reaches Redis, and its reply is dropped.
    pub(crate) is_abandoned: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum EngineReply {
    Done,
    Containers(Vec<Container>),
    Container(Box<Container>),
    ExitCode(i64),
}

pub(crate) struct EngineRequest {
    pub(crate) process: ProcessId,
    pub(crate) call: HostCall,
    pub(crate) reply: oneshot::Sender<Result<EngineReply, RuntimeError>>,
    pub(crate) sent_at: u64,
    pub(crate) delayed_until: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum HostCall {
    Ping,
    List,
    Image(String),
    Run(Box<ContainerRequest>),
    Restart(String),
    /// With the grace period in milliseconds.
    Stop(String, u64),
    Halt(String),
    Check(String),
}

pub(crate) struct Subscriber {
    pub(crate) instance: u64,
    pub(crate) handler: MessageHandler,
}

#[derive(Default)]
pub(crate) struct Bus {
    pub(crate) now: u64,
    pub(crate) redis_requests: Vec<RedisRequest>,
    pub(crate) engine_requests: Vec<EngineRequest>,
    pub(crate) subscribers: Vec<Subscriber>,
    pub(crate) broken_connections: Vec<u64>,
    /// While it stands still, no process requests anything.
    pub(crate) request_count: u64,
    connection_count: u64,
}

impl Bus {
    pub(crate) fn break_all_connections(&mut self) {
        self.broken_connections = (0..=self.connection_count).collect();
    }
}

#[derive(Clone, Default)]
pub(crate) struct SharedBus(Arc<Mutex<Bus>>);

impl SharedBus {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Bus> {
        self.0.lock()
    }

    pub(crate) fn call_engine(
        &self,
        process: ProcessId,
        call: HostCall,
    ) -> oneshot::Receiver<Result<EngineReply, RuntimeError>> {
        let (reply, receiver) = oneshot::channel();
        let mut bus = self.lock();
        bus.request_count += 1;
        let now = bus.now;
        bus.engine_requests.push(EngineRequest { process, call, reply, sent_at: now, delayed_until: now });
        receiver
    }
}

pub(crate) struct SimulatedNetwork {
    pub(crate) bus: SharedBus,
    pub(crate) process: ProcessId,
    pub(crate) instance: u64,
    pub(crate) is_elsewhere: bool,
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
