//! What the worker saves of the pods that run here, on its own disk: the backup of Redis.

pub(crate) mod backup_containers;
pub(crate) mod backup_loop;
pub(crate) mod pod_backup;
