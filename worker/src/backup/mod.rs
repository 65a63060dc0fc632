//! Saves this node's pods on the worker's own disk, for `kubeleet cluster recover` after Redis has lost its
//! data. `kubeleet backup` is another file: an operator's, of the whole cluster.
//!
//! Tests: beside the code, tests::recovering, scenarios::recovery

pub(crate) mod backup_containers;
pub(crate) mod backup_loop;
pub(crate) mod pod_backup;
