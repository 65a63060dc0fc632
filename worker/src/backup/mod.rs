//! What the worker saves of the pods that run here, on its own disk: the backup of Redis.
//!
//! Tests: beside the code, tests::recovering, scenarios::recovery

pub(crate) mod backup_containers;
pub(crate) mod backup_loop;
pub(crate) mod pod_backup;
