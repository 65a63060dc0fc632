//! Where everything waits that a process asked of its surroundings: commands to Redis, calls of its engine. Nothing
//! happens before the explorer has picked it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use ::redis::Value;
use common::store::{Ear, Line, Wire, Words};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use worker::runtime::{ContainerRequest, RuntimeError};

use super::host::Answered;
use super::who::Who;

/// Commands sent in one go over one connection.
pub(super) struct Request {
    pub(super) who: Who,
    /// Its connection: answered in order.
    pub(super) line: u64,
    pub(super) commands: Vec<Words>,
    pub(super) reply: oneshot::Sender<io::Result<Vec<Value>>>,
    /// When it was sent.
    pub(super) since: u64,
    /// It does not reach Redis before.
    pub(super) held_until: u64,
    /// Its sender has given it up, or is dead; it is on its way all the same.
    pub(super) late: bool,
}

/// A call of a host's engine.
pub(super) struct Call {
    pub(super) who: Who,
    pub(super) asked: Asked,
    pub(super) reply: oneshot::Sender<Result<Answered, RuntimeError>>,
    pub(super) since: u64,
    /// It does not take effect before.
    pub(super) held_until: u64,
}

/// What an engine can be asked.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Ping,
    List,
    Image(String),
    Run(Box<ContainerRequest>),
    Restart(String),
    /// With its grace, in milliseconds.
    Stop(String, u64),
}

/// Who listens, and in which life.
pub(super) struct Listener {
    pub(super) life: u64,
    pub(super) ear: Ear,
}

#[derive(Default)]
pub(super) struct Bus {
    pub(super) now: u64,
    pub(super) requests: Vec<Request>,
    pub(super) calls: Vec<Call>,
    pub(super) listeners: Vec<Listener>,
    /// Connections that broke.
    pub(super) broken: Vec<u64>,
    /// Counts what was ever asked: when it stands, nobody asks any more.
    pub(super) asked: u64,
    lines: u64,
}

impl Bus {
    /// Every connection there is.
    pub(super) fn break_all(&mut self) {
        self.broken = (0..=self.lines).collect();
    }
}

/// Shared by all processes and the explorer.
#[derive(Clone, Default)]
pub(super) struct SharedBus(Arc<Mutex<Bus>>);

impl SharedBus {
    pub(super) fn lock(&self) -> MutexGuard<'_, Bus> {
        self.0.lock().unwrap()
    }

    /// Asks an engine.
    pub(super) fn call(&self, who: Who, asked: Asked) -> oneshot::Receiver<Result<Answered, RuntimeError>> {
        let (reply, answer) = oneshot::channel();
        let mut bus = self.lock();
        bus.asked += 1;
        let now = bus.now;
        bus.calls.push(Call { who, asked, reply, since: now, held_until: now });
        answer
    }
}

/// The network of one life of a process.
pub(super) struct Network {
    pub(super) bus: SharedBus,
    pub(super) who: Who,
    pub(super) life: u64,
}

impl Wire for Network {
    fn open(&self) -> Arc<dyn Line> {
        let mut bus = self.bus.lock();
        bus.lines += 1;
        Arc::new(OneLine { bus: self.bus.clone(), who: self.who, line: bus.lines })
    }

    fn listen(&self, ear: Ear) {
        self.bus.lock().listeners.push(Listener { life: self.life, ear });
    }
}

struct OneLine {
    bus: SharedBus,
    who: Who,
    line: u64,
}

impl Line for OneLine {
    fn send(&self, commands: Vec<Words>) -> BoxFuture<'static, io::Result<Vec<Value>>> {
        let (reply, answer) = oneshot::channel();
        let mut bus = self.bus.lock();
        if bus.broken.contains(&self.line) {
            drop(reply);
        } else {
            bus.asked += 1;
            let (who, line, now) = (self.who, self.line, bus.now);
            bus.requests.push(Request {
                who,
                line,
                commands,
                reply,
                since: now,
                held_until: now,
                late: false,
            });
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())) })
    }
}
