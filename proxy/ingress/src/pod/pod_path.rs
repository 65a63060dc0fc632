//! The way to a pod: through its gate on this host, or through the proxy of its own host, which has its gate.

use std::time::Duration;

use gate::{Cut, Pass};
use tunnel::TunnelStream;

use crate::pod::connection::PodConnection;

/// A way to a pod that has let in.
pub(crate) enum PodPath {
    /// The pod is on this host.
    Here(Pass),
    /// A connection to the pod's port, through the tunnel, for one request after the other.
    Http(Box<PodConnection>),
    /// A connection to the pod's port, through the tunnel. It counts at the gate there until it ends, so it
    /// is for one connection or request, and is never kept.
    There {
        stream: Box<TunnelStream>,
        /// How long it took to connect.
        took: Duration,
    },
}

/// Completes when what was let in has to end. The proxy of another host ends the connection instead.
pub(crate) async fn until_cut(cut: Option<&mut Cut>) {
    match cut {
        Some(cut) => cut.await,
        None => std::future::pending().await,
    }
}
