//! The choice of a pod for a request, the connection to it, and retries.
//!
//! Begin with `exchange`; `search` and `pick` choose a pod of the `routing_table`.

pub(crate) mod ask_backoff;
pub(crate) mod connection;
pub(crate) mod exchange;
pub(crate) mod following;
pub(crate) mod from_pod;
pub(crate) mod http2;
pub(crate) mod pick;
pub(crate) mod pod_path;
pub(crate) mod request_to_pod;
pub(crate) mod retry_policy;
pub(crate) mod routing_table;
pub(crate) mod search;
pub(crate) mod stream_count;
mod thinned;
