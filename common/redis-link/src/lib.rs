//! The connection to Redis: finds the master, connects to it, and reconnects after failures.
//!
//! - Commands that do not block share one connection and are pipelined ([`Link`]).
//! - A loop of blocking commands has a connection of its own ([`DedicatedConnection`]).
//! - Writes that must survive a failover wait for the replicas ([`Link::durable_script`]).
//! - Published messages arrive on one more connection ([`Subscription`]).
//!
//! One task, the connection manager, connects. Without a connection, a command waits for a bounded time, then
//! fails with [`StoreError::Unreachable`]. The link never repeats a command whose reply was lost: only the
//! caller knows whether that is safe.
//!
//! Tests: beside the code

mod attached;
mod call;
mod connection_manager;
mod dedicated;
mod dial;
mod durability;
mod durable;
mod error;
mod fault;
mod health;
mod hints;
mod hub;
mod link;
mod refusal;
mod replicas;
mod sentinel;
mod sentinel_report;
mod state;
mod transport;

#[cfg(test)]
mod tests;

pub use attached::{AttachedReplica, attached_replicas};
pub use call::ScriptCall;
pub use dedicated::DedicatedConnection;
pub use durability::Durability;
pub use error::{CAUSES, StoreError};
pub use health::LinkHealth;
pub use hints::{pending_hints, tick_or_hints};
pub use hub::Subscription;
pub use link::{Link, LinkOptions};
pub use sentinel_report::{SentinelFacts, SentinelReport};
pub use transport::{MessageHandler, RedisCommand, Transport, TransportConnection};
