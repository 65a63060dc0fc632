//! The domain of kubeleet, and the arithmetic over it.
//!
//! Pure: no I/O, no clock, no Redis. May import `document` alone.
//!
//! Tests: beside the code

pub mod broken_key;
pub mod duration;
pub mod event;
pub mod ids;
pub mod network;
pub mod node;
pub mod pod;
pub mod queue_lengths;
pub mod schema;
pub mod service;
pub mod spec;
pub mod stream;
pub mod time;
pub mod value;

pub use time::RedisMillis;
