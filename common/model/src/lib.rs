//! The domain of kubeleet: ids, pods, nodes, services, volumes, secrets, events, what users write ([`spec`]),
//! and the arithmetic over them.
//!
//! Pure: no I/O, no clock, no Redis. May import `document` alone. The unit tests beside the code hold it.

pub mod address;
pub mod address_range;
pub mod broken_key;
pub mod certificate;
pub mod channel;
pub mod cron;
pub mod duration;
pub mod endpoint;
pub mod event;
pub mod handover;
pub mod health;
pub mod host_access;
pub mod ids;
pub mod image;
pub mod ingress;
pub mod lifecycle;
pub mod log_line;
pub mod log_merge;
pub mod mass_loss;
pub mod network;
pub mod node;
pub mod payload;
pub mod pod;
pub mod queue_lengths;
pub mod registry;
pub mod resources;
pub mod schema;
pub mod secret;
pub mod secret_key;
pub mod selector;
pub mod service;
pub mod slot;
pub mod spec;
pub mod time;
pub mod timing;
pub mod usage;
pub mod value;
pub mod volume;

pub use time::RedisMillis;
