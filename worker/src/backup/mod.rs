//! Saves this node's pods on the worker's own disk, as the backup of Redis.
//!
//! Tests: beside the code, tests::recovering, scenarios::recovery

pub(crate) mod backup_containers;
pub(crate) mod backup_loop;
pub(crate) mod pod_backup;
