//! One life of a worker: register, look at what runs here, serve the loops until it ends; then, perhaps, another one.
//!
//! A life ends when the process shall, or when the cluster has given up on it. In that case everything it runs has
//! been given away: it is stopped, and a new life begins with nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use common::RedisMillis;
use common::config::RuntimeKind;
use common::node::NodeFacts;
use common::store::{Answer, Fenced, Registration, Session};
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::ack::{self, AckRequest};
use crate::backoff::{Backoff, jittered};
use crate::courtesy::Courtesy;
use crate::strangers::Strangers;
use crate::table::Table;
use crate::worker::{Asked, Worker};
use crate::{WorkerError, claim, fence, heartbeat, machine, supervise};

/// Between two tries to register while its old pods are still being moved.
const DRAINING_RETRY: Duration = Duration::from_millis(300);
/// How long a new life waits for what an old one ran to go away. What is left then is found again as foreign.
const PURGE: Duration = Duration::from_secs(30);
/// A worker that is replaced twice within this time shares its name with another.
const SHARED_NAME: Duration = Duration::from_secs(60);
/// How many starts of a simulated engine are under way at a time: they cost nothing.
const SIM_CONCURRENCY: usize = 64;

/// What the loops and tasks of one life share.
pub(crate) struct Life {
    pub(crate) worker: Arc<Worker>,
    pub(crate) session: Session,
    pub(crate) table: Table,
    /// One for each start under way.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) acks: mpsc::Sender<AckRequest>,
    /// Take on nothing new.
    pub(crate) quit: CancellationToken,
    /// Stop, wherever you are.
    over: CancellationToken,
    tasks: TaskTracker,
    /// Send a heartbeat now.
    pub(crate) beat_now: Notify,
    /// Look at the containers now.
    pub(crate) look_now: Notify,
    look_at_all: AtomicBool,
    sweep_soon: AtomicBool,
    /// Whether a ping of the engine is under way.
    pub(crate) pinging: AtomicBool,
    /// Cancelled (which is: reached) once what ran here before was looked at.
    pub(crate) verified: CancellationToken,
    /// Pods to be stopped that this life does not know.
    pub(crate) strangers: Strangers,
    /// How long loops pause, for the sake of other workers.
    pub(crate) courtesy: Courtesy,
    /// When Redis last said that it took over from another; none before the first beat.
    master_changed_at: Mutex<Option<RedisMillis>>,
    /// The master that has confirmed all that must not run twice, by when it took over.
    confirmed_by: Mutex<Option<RedisMillis>>,
    /// Until when Redis counts as answering, on the boot clock.
    heard_until: AtomicU64,
    fenced: OnceLock<Fenced>,
    is_fenced: CancellationToken,
}

enum End {
    Shutdown,
    Fenced(Fenced),
    Broken,
}

/// Lives until `shutdown`, or until nothing sensible is left to do.
pub(crate) async fn run(worker: Arc<Worker>, shutdown: CancellationToken) -> Result<(), WorkerError> {
    let (swept, is_swept) = oneshot::channel();
    let fence = tokio::spawn(fence::hold(worker.clone(), shutdown.clone(), swept));
    let mut fence = AbortOnDropHandle::new(fence);
    let broken = || Err(WorkerError::Broken { node: worker.node.clone() });
    match is_swept.await {
        Ok(()) => {}
        Err(_) if shutdown.is_cancelled() => return Ok(()),
        Err(_) => return broken(),
    }
    tokio::select! {
        ended = lives(&worker, &shutdown) => ended,
        // It ends when it panicked. Without a fence nothing may run here.
        _ = &mut fence => broken(),
    }
}

/// One life after the other.
async fn lives(worker: &Arc<Worker>, shutdown: &CancellationToken) -> Result<(), WorkerError> {
    let mut replaced: Option<Instant> = None;
    while let Some(session) = register(worker, shutdown).await {
        match live(worker, session, shutdown).await {
            End::Shutdown => break,
            End::Broken => return Err(WorkerError::Broken { node: worker.node.clone() }),
            // Once may be a failover that lost our registration. Soon again is somebody who answers each of ours.
            End::Fenced(Fenced::Replaced) => {
                let before = replaced.replace(Instant::now());
                if before.is_some_and(|before| before.elapsed() < SHARED_NAME) {
                    return Err(WorkerError::Replaced { node: worker.node.clone() });
                }
                tracing::warn!(node = %worker.node, "another life has this name, or Redis has lost ours: registering again");
            }
            End::Fenced(Fenced::Dead) => {
                tracing::warn!(node = %worker.node, "declared dead: its pods were given away; stopping all of them");
                worker.lease.give_up();
                purge(worker, shutdown).await;
            }
        }
    }
    Ok(())
}

async fn purge(worker: &Worker, shutdown: &CancellationToken) {
    if tokio::time::timeout(PURGE, fence::purge(worker, shutdown)).await.is_err() {
        tracing::error!(node = %worker.node, "not all containers could be removed; going on, they are tried again");
    }
}

/// Tries until it is done; none at `shutdown`.
async fn register(worker: &Worker, shutdown: &CancellationToken) -> Option<Session> {
    let facts = facts(worker).await;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut purged = false;
    loop {
        let result = tokio::select! {
            () = shutdown.cancelled() => return None,
            result = worker.store.register(&worker.node, &facts) => result,
        };
        let wait = match result {
            Ok(Registration::Registered { session, requeued }) => {
                worker.redis.worked();
                tracing::info!(node = %worker.node, requeued, runtime = facts.runtime, "registered");
                return Some(session);
            }
            Ok(Registration::Draining) => {
                worker.redis.worked();
                if !std::mem::replace(&mut purged, true) {
                    tracing::info!(node = %worker.node, "declared dead while away; its pods are still being moved");
                    purge(worker, shutdown).await;
                }
                DRAINING_RETRY
            }
            Err(error) => {
                worker.redis.failed(&error);
                jittered(backoff.next())
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn facts(worker: &Worker) -> NodeFacts {
    let info = worker.runtime.ping().await;
    worker.engine.heard(Asked::Ping, &info);
    let (runtime, engine_version) = match info {
        Ok(info) => (info.runtime, info.version),
        Err(_) => (runtime_word(worker.config.runtime), String::new()),
    };
    NodeFacts {
        labels: worker.config.labels.clone(),
        capacity: worker.config.capacity(machine::resources()),
        runtime: runtime.to_owned(),
        engine_version,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What a node says it runs on while its engine does not answer.
fn runtime_word(kind: RuntimeKind) -> &'static str {
    match kind {
        RuntimeKind::Docker => "docker",
        RuntimeKind::Process => "process",
        RuntimeKind::Sim => "sim",
    }
}

/// Serves the loops until the life ends, and ends them in order: nothing new, then what is under way, then the rest.
async fn live(worker: &Arc<Worker>, session: Session, shutdown: &CancellationToken) -> End {
    let (life, acks) = Life::new(worker.clone(), session);
    // Also when this future is dropped.
    let _over = life.over.clone().drop_guard();
    let mut loops = JoinSet::new();
    loops.spawn(heartbeat::run(life.clone()));
    loops.spawn(supervise::run(life.clone()));
    loops.spawn(claim::run(life.clone()));
    loops.spawn(ack::run(life.clone(), acks));
    let end = tokio::select! {
        () = shutdown.cancelled() => End::Shutdown,
        fenced = life.until_fenced() => End::Fenced(fenced),
        // No loop ends by itself: it panicked, and has said so.
        _ = loops.join_next() => End::Broken,
    };
    life.quit.cancel();
    life.tasks.close();
    if tokio::time::timeout(worker.pace.shutdown, life.tasks.wait()).await.is_err() {
        tracing::warn!(node = %worker.node, "some starts or stops are still under way; the next life goes on with them");
    }
    life.over.cancel();
    loops.shutdown().await;
    end
}

impl Life {
    fn new(worker: Arc<Worker>, session: Session) -> (Arc<Self>, mpsc::Receiver<AckRequest>) {
        let (acks, receiver) = mpsc::channel(256);
        let concurrency = match worker.config.runtime {
            RuntimeKind::Sim => SIM_CONCURRENCY,
            RuntimeKind::Docker | RuntimeKind::Process => worker.config.start_concurrency,
        };
        let life = Self {
            worker,
            session,
            table: Table::default(),
            permits: Arc::new(Semaphore::new(concurrency)),
            acks,
            quit: CancellationToken::new(),
            over: CancellationToken::new(),
            tasks: TaskTracker::new(),
            beat_now: Notify::new(),
            look_now: Notify::new(),
            look_at_all: AtomicBool::new(true),
            sweep_soon: AtomicBool::new(false),
            pinging: AtomicBool::new(false),
            verified: CancellationToken::new(),
            strangers: Strangers::default(),
            courtesy: Courtesy::new(),
            master_changed_at: Mutex::new(None),
            confirmed_by: Mutex::new(None),
            heard_until: AtomicU64::new(0),
            fenced: OnceLock::new(),
            is_fenced: CancellationToken::new(),
        };
        // Registering was an answer.
        life.hears_redis();
        (Arc::new(life), receiver)
    }

    /// Runs beside the loops; the end of the life waits for it a while, then cuts it off.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.over.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// The cluster has given up on this life.
    pub(crate) fn fence(&self, why: Fenced) {
        let _first_wins = self.fenced.set(why);
        self.is_fenced.cancel();
    }

    async fn until_fenced(&self) -> Fenced {
        self.is_fenced.cancelled().await;
        self.fenced.get().copied().unwrap_or(Fenced::Dead)
    }

    /// Takes down when Redis took over from another; true when it did so since the last time.
    pub(crate) fn sees_master_change(&self, changed_at: RedisMillis) -> bool {
        let mut known = self.master_changed_at.lock().unwrap_or_else(PoisonError::into_inner);
        known.replace(changed_at).is_some_and(|before| before != changed_at)
    }

    /// All that must not run twice here has been confirmed by this master.
    pub(crate) fn confirmed(&self, by: Option<RedisMillis>) {
        *self.confirmed_by.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    /// Whether all that must not run twice here has been confirmed by the master that took over then. Another one may
    /// have forgotten that it was given to this node, and give it to others.
    pub(crate) fn is_confirmed_by(&self, changed_at: RedisMillis) -> bool {
        *self.confirmed_by.lock().unwrap_or_else(PoisonError::into_inner) == Some(changed_at)
    }

    /// The same, of the master that answered last.
    pub(crate) fn is_confirmed(&self) -> bool {
        let last = *self.master_changed_at.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|changed_at| self.is_confirmed_by(changed_at))
    }

    /// Redis has answered.
    pub(crate) fn hears_redis(&self) {
        let until = self.worker.now().plus(self.worker.config.timing.fence_after);
        self.heard_until.store(until.millis, Ordering::Release);
    }

    /// Whether Redis has answered a moment ago.
    pub(crate) fn is_in_touch(&self) -> bool {
        self.worker.now().millis < self.heard_until.load(Ordering::Acquire)
    }

    /// Looks at the containers soon.
    pub(crate) fn look(&self) {
        self.look_now.notify_one();
    }

    /// Looks at the containers and at all that Redis says runs here.
    pub(crate) fn look_at_all(&self) {
        self.look_at_all.store(true, Ordering::Release);
        self.look_now.notify_one();
    }

    pub(crate) fn takes_look_at_all(&self) -> bool {
        self.look_at_all.swap(false, Ordering::AcqRel)
    }

    /// Sweeps rq at the next turn of the claim loop.
    pub(crate) fn sweep_soon(&self) {
        self.sweep_soon.store(true, Ordering::Release);
    }

    pub(crate) fn takes_sweep(&self) -> bool {
        self.sweep_soon.swap(false, Ordering::AcqRel)
    }

    /// Does it until Redis answers. None when this life may not write any more, or when trying on can not help; that
    /// has been said then.
    pub(crate) async fn insist<'a, T>(
        &self,
        what: &str,
        write: impl Fn() -> BoxFuture<'a, Answer<T>>,
    ) -> Option<T> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.heard(what, write().await) {
                Heard::Answer(value) => return Some(value),
                Heard::Fenced | Heard::Hopeless => return None,
                Heard::Again => tokio::time::sleep(jittered(backoff.next())).await,
            }
        }
    }

    /// Sorts an answer, and says once when Redis goes or comes.
    pub(crate) fn heard<T>(&self, what: &str, answer: Answer<T>) -> Heard<T> {
        match answer {
            Ok(Ok(value)) => {
                self.worker.redis.worked();
                Heard::Answer(value)
            }
            Ok(Err(_)) => {
                // Only the heartbeat is told why.
                self.beat_now.notify_one();
                Heard::Fenced
            }
            Err(error) if error.is_transient() => {
                self.worker.redis.failed(&error);
                Heard::Again
            }
            Err(error) => {
                tracing::error!(node = %self.worker.node, %error, "{what} failed");
                Heard::Hopeless
            }
        }
    }
}

/// An answer of Redis, sorted by what to do about it.
pub(crate) enum Heard<T> {
    Answer(T),
    /// This life may not write any more; its end is on the way.
    Fenced,
    /// Redis is away: try again.
    Again,
    /// Trying again does not help before somebody changes something.
    Hopeless,
}
