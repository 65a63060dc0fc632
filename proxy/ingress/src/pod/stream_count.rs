//! Counts the HTTP/2 connections to a pod that requests share, and the open streams of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of one thread to one port of a pod. Most servers take 100 streams on each.
pub(crate) const MOST_CONNECTIONS: usize = 256;
/// Of which the pod has not yet said how many streams they take. A burst would open one for each request.
pub(crate) const MOST_BEGINNING: usize = 16;

/// Counts the clones that permits have.
#[derive(Default)]
pub(crate) struct ConnectionCount {
    all: Arc<()>,
    beginning: Arc<()>,
}

/// Counts as a connection until dropped.
pub(crate) struct ConnectionPermit {
    _all: Arc<()>,
    beginning: Option<Arc<()>>,
}

impl ConnectionCount {
    pub(crate) fn permit(&self) -> Option<ConnectionPermit> {
        let permits = |count: &Arc<()>| Arc::strong_count(count) - 1;
        let has_room = permits(&self.all) < MOST_CONNECTIONS && permits(&self.beginning) < MOST_BEGINNING;
        let (all, beginning) = (&self.all, &self.beginning);
        has_room.then(|| ConnectionPermit { _all: all.clone(), beginning: Some(beginning.clone()) })
    }
}

impl ConnectionPermit {
    pub(crate) fn has_begun(&mut self) {
        self.beginning = None;
    }
}

/// Of one connection.
#[derive(Default)]
pub(crate) struct StreamCount(Arc<AtomicUsize>);

/// Counts as open until dropped.
pub(crate) struct OpenStream(Arc<AtomicUsize>);

impl StreamCount {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) -> Arc<OpenStream> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Arc::new(OpenStream(self.0.clone()))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
