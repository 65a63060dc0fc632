//! The path to a pod: its gate on this host, or the proxy of its host, which has its gate.

use std::time::Duration;

use gate::{Cut, Pass};
use tunnel::TunnelStream;

use crate::pod::connection::PodConnection;

/// A path to a pod whose gate admitted the request or connection.
pub(crate) enum PodPath {
    Here(Pass),
    /// A tunnel connection to the pod's port, for consecutive requests.
    Http(Box<PodConnection>),
    /// A tunnel connection for a single request or TCP connection. It counts at the gate there until its end,
    /// so it is never kept.
    There {
        stream: Box<TunnelStream>,
        /// Time that connecting took.
        took: Duration,
    },
}

/// Completes when the request or connection must end. The proxy of another host closes the connection
/// instead.
pub(crate) async fn until_cut(cut: Option<&mut Cut>) {
    match cut {
        Some(cut) => cut.await,
        None => std::future::pending().await,
    }
}
