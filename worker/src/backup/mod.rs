//! Saves this node's pods on the worker's disk, for `kubeleet cluster recover` after Redis has lost its data.
//! `kubeleet backup` is an operator's file, of the whole cluster.
//!
//! Tests: beside the code, tests::recovering, scenarios::recovery

pub(crate) mod backup_containers;
pub(crate) mod backup_loop;
pub(crate) mod pod_backup;
