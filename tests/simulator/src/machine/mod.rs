//! The machines of the processes: hosts with their engines, clocks, the network, and Redis.

pub(crate) mod bus;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod deterministic;
pub(crate) mod host;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod process_id;
pub(crate) mod process_slot;
pub(crate) mod random;
pub(crate) mod redis;
pub(crate) mod redis_values;
pub(crate) mod scripts;
