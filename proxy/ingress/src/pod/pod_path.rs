//! The path to a pod: its gate on this host, or the proxy of its host, which has its gate.

use gate::{Cut, Pass};

/// Its gate admitted the request or connection.
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
