//! The path to a pod: its gate on this host, or the proxy of its host, which has its gate.

use gate::{Cut, Pass};

/// A path to a pod whose gate admitted the request or connection.
pub(crate) enum PodPath<T> {
    Here(Pass),
    /// A tunnel connection to the pod's port.
    There(Box<T>),
}

/// Completes when the request or connection must end. The proxy of another host closes the connection
/// instead.
pub(crate) async fn until_cut(cut: Option<&mut Cut>) {
    match cut {
        Some(cut) => cut.await,
        None => std::future::pending().await,
    }
}
