//! The way to a pod: through its gate on this host, or through the proxy of its own host, which has its gate.

use std::pin::Pin;
use std::time::Duration;

use crate::gate::Pass;
use crate::tunnel::TunnelStream;

use super::connection::Connection;

/// A way to a pod that has let in.
pub(super) enum Way {
    /// The pod is on this host.
    Here(Pass),
    /// A connection to the pod's port, through the tunnel, for requests.
    Http(Box<Connection>),
    /// A connection to the pod's port, through the tunnel. It counts at the gate there until it ends, so it is for one
    /// connection, and is never kept.
    There {
        stream: Box<TunnelStream>,
        /// How long it took to connect.
        took: Duration,
    },
}

/// Completes when a request or connection has to end at once.
pub(super) type Cut = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns when what was let in has to end. The proxy of another host ends the connection instead.
pub(super) fn cut(pass: Option<&Pass>) -> Cut {
    match pass {
        Some(pass) => Box::pin(pass.cut()),
        None => Box::pin(std::future::pending()),
    }
}
