//! Shared state of one session's loops and tasks. Imports no loop.

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::config::RuntimeKind;
use daemon::log_limit::LogLimit;
use daemon::token_bucket::TokenBucket;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use store::{Session, SessionResult};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::answer::log_writer::{BYTES_PER_SECOND, MAX_READERS};
use crate::handover::Handover;
use crate::running::doubted_containers::DoubtedContainers;
use crate::running::held_pods::HeldPods;
use crate::running::table::PodTable;
use crate::running::unknown_pods::UnknownPods;
use crate::session::broken_records::BrokenRecords;
use crate::session::fenced_signal::FencedSignal;
use crate::session::link_state::LinkState;
use crate::session::redis_throttle::RedisThrottle;
use crate::session::reply_class::ReplyClass;
use crate::session::tasks::Tasks;
use crate::session::wakeups::Wakeups;
use crate::start::ack_queue::{AckQueue, AckRequest};
use crate::start::dependency_gate::DependencyGate;
use crate::worker::Worker;
use health::HealthChange;
use health::monitor::HealthMonitor;
use health::probe::RuntimeProber;

/// Each has a connection to Redis.
pub(crate) const MAX_CHANNELS: usize = 64;
const SIM_START_CONCURRENCY: usize = 64;

pub(crate) struct SessionContext {
    pub(crate) worker: Arc<Worker>,
    pub(crate) session: Session,
    pub(crate) table: PodTable,
    pub(crate) link: LinkState,
    pub(crate) handover: Handover,
    pub(crate) wakeups: Wakeups,
    pub(crate) tasks: Tasks,
    pub(crate) fenced: FencedSignal,
    pub(crate) throttle: RedisThrottle,
    pub(crate) unknown_pods: UnknownPods,
    pub(crate) held: HeldPods,
    pub(crate) doubted: DoubtedContainers,
    pub(crate) health: Arc<HealthMonitor>,
    pub(crate) broken_records: BrokenRecords,
    pub(crate) dependencies: DependencyGate,
    permanent_errors: LogLimit<String>,
    pub(crate) acks: AckQueue,
    pub(crate) log_permits: Semaphore,
    pub(crate) log_throttle: Mutex<TokenBucket>,
    pub(crate) channel_permits: Semaphore,
    pub(crate) start_permits: Arc<Semaphore>,
    /// Cancelled after the first full listing of containers: from then on pods may start.
    pub(crate) first_listing_done: CancellationToken,
}

impl SessionContext {
    pub(crate) fn new(
        worker: Arc<Worker>,
        session: Session,
    ) -> (Arc<Self>, mpsc::Receiver<AckRequest>, mpsc::UnboundedReceiver<HealthChange>) {
        let (acks, ack_requests) = AckQueue::new();
        let prober = Arc::new(RuntimeProber(worker.runtime.clone()));
        let (health, health_changes) = HealthMonitor::new(prober, worker.clock.clone());
        let start_concurrency = match worker.config.runtime {
            RuntimeKind::Sim => SIM_START_CONCURRENCY,
            RuntimeKind::Docker | RuntimeKind::Process => worker.config.start_concurrency,
        };
        let context = Self {
            link: LinkState::new(worker.clock.clone(), worker.config.timing.fence_after),
            handover: Handover::new(worker.proxy.is_some()),
            worker,
            session,
            table: PodTable::default(),
            wakeups: Wakeups::new(),
            tasks: Tasks::new(),
            fenced: FencedSignal::default(),
            throttle: RedisThrottle::new(),
            unknown_pods: UnknownPods::default(),
            held: HeldPods::default(),
            doubted: DoubtedContainers::default(),
            health,
            broken_records: BrokenRecords::default(),
            dependencies: DependencyGate::default(),
            permanent_errors: LogLimit::of_retries(),
            acks,
            log_permits: Semaphore::new(MAX_READERS),
            log_throttle: Mutex::new(TokenBucket::new(BYTES_PER_SECOND)),
            channel_permits: Semaphore::new(MAX_CHANNELS),
            start_permits: Arc::new(Semaphore::new(start_concurrency)),
            first_listing_done: CancellationToken::new(),
        };
        (Arc::new(context), ack_requests, health_changes)
    }

    /// Logs when Redis becomes unavailable or returns.
    pub(crate) fn classify<T>(&self, operation: &str, reply: SessionResult<T>) -> ReplyClass<T> {
        match reply {
            Ok(Ok(value)) => {
                self.worker.redis_log.succeeded();
                ReplyClass::Reply(value)
            }
            Ok(Err(_)) => {
                // Only the reply to a heartbeat ends the session, with the reason.
                self.wakeups.request_heartbeat();
                ReplyClass::Fenced
            }
            Err(error) if error.is_transient() => {
                self.worker.redis_log.failed(&error);
                ReplyClass::Transient(error)
            }
            Err(error) => {
                if self.permanent_errors.admit(format!("{operation}: {error}")) {
                    tracing::error!(node = %self.worker.node, %error, "{operation} failed");
                }
                ReplyClass::Permanent(error)
            }
        }
    }

    /// `None` if this session is fenced, or if repeating is useless, which is logged.
    pub(crate) async fn persist<'a, T>(
        &self,
        operation: &str,
        write: impl Fn() -> BoxFuture<'a, SessionResult<T>>,
    ) -> Option<T> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.classify(operation, write().await) {
                ReplyClass::Reply(value) => return Some(value),
                ReplyClass::Fenced | ReplyClass::Permanent(_) => return None,
                ReplyClass::Transient(_) => tokio::time::sleep(backoff.next()).await,
            }
        }
    }
}
