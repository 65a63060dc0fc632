//! The path to a pod: its gate on this host, or the proxy of its host.

use gate::{Cut, Pass};

/// The gate has admitted the request.
pub(crate) enum PodPath<T> {
    Here(Pass),
    There(Box<T>),
}

/// The proxy of another host closes the connection instead.
pub(crate) async fn until_cut(cut: Option<&mut Cut>) {
    match cut {
        Some(cut) => cut.await,
        None => std::future::pending().await,
    }
}
