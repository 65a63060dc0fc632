//! The one door to Redis: only this module imports the `redis` crate or spells a key.
//!
//! Everything that must happen in one step is a Lua script under `lua/`; a verb here fills in its keys and arguments
//! and turns its reply into an enum at once. Every verb may be repeated after a lost reply: doing it twice is doing it
//! once. Verbs are grouped by who calls them.

mod confirm;
mod error;
mod events;
mod keys;
mod letters;
pub mod link;
mod logs;
mod nodes;
mod pods;
mod queues;
mod reply;
mod scheduling;
mod scripts;
mod services;
mod spec_cache;
mod working;

use std::sync::Arc;

pub use confirm::{WriteState, Written};
pub use error::StoreError;
pub use keys::channel;
pub use letters::Letter;
use link::Link;
pub use link::{
    Durability, Ear, Line, LinkHealth, LinkOptions, RedisUrl, Subscription, UrlError, Wire, Words,
};
pub use logs::{LogChunk, LogRequest};
pub use nodes::{DeclareOutcome, DrainOutcome, GuestBeat, GuestSign, NodeQueues};
pub use pods::{CreateOutcome, RequeueOutcome, StopOutcome};
pub use queues::{QueueLengths, QueueName};
pub use scheduling::{AssignOutcome, Assignment, ParkOutcome, Parked, SchedulerQueue, TAKEN_AT_ONCE, Unpark};
pub use services::{PutMode, PutOutcome, ScaleOutcome};
use spec_cache::SpecCache;
pub use working::{
    Ack, AckItem, Answer, Claim, ClaimItem, ClaimReply, Fenced, FinishReport, HeartbeatReply, Outcome,
    PodRef, Registration, Session, StatusReport, WorkQueue, Write,
};

/// The state of the cluster, as verbs. Cheap to clone; all clones share connections.
#[derive(Clone)]
pub struct Store {
    link: Link,
    specs: Arc<SpecCache>,
}

impl Store {
    /// A store behind this URL. Connects on first use.
    pub fn new(url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::new(url, options), specs: Arc::default() }
    }

    /// A store whose commands go over `wire` instead of a network.
    pub fn over(wire: Arc<dyn Wire>, url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::over(Some(wire), url, options), specs: Arc::default() }
    }

    /// Whether Redis can be reached, as it changes.
    pub fn health(&self) -> tokio::sync::watch::Receiver<LinkHealth> {
        self.link.health()
    }

    /// Asks Redis for a sign of life.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.link.query(&redis::cmd("PING")).await
    }

    /// Hints on a channel (see [`channel`]). Whoever needs to be right rereads on its own as well.
    pub fn subscribe(&self, channel: &str) -> Subscription {
        self.link.subscribe(channel)
    }
}
