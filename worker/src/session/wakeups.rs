//! Requests from parts of a session to its loops, which also act on their own schedule (invariant 8).

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

pub(crate) struct Wakeups {
    heartbeat: Notify,
    reconcile: Notify,
    full_reconcile: AtomicBool,
    sweep: AtomicBool,
    volumes: Notify,
}

impl Wakeups {
    pub(crate) fn new() -> Self {
        Self {
            heartbeat: Notify::new(),
            reconcile: Notify::new(),
            full_reconcile: AtomicBool::new(true),
            sweep: AtomicBool::new(false),
            volumes: Notify::new(),
        }
    }

    pub(crate) fn request_heartbeat(&self) {
        self.heartbeat.notify_one();
    }

    pub(crate) async fn heartbeat_requested(&self) {
        self.heartbeat.notified().await;
    }

    pub(crate) fn request_reconcile(&self) {
        self.reconcile.notify_one();
    }

    pub(crate) fn request_full_reconcile(&self) {
        self.full_reconcile.store(true, Ordering::Release);
        self.reconcile.notify_one();
    }

    pub(crate) async fn reconcile_requested(&self) {
        self.reconcile.notified().await;
    }

    pub(crate) fn take_full_reconcile(&self) -> bool {
        self.full_reconcile.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn request_volumes(&self) {
        self.volumes.notify_one();
    }

    pub(crate) async fn volumes_requested(&self) {
        self.volumes.notified().await;
    }

    pub(crate) fn request_sweep(&self) {
        self.sweep.store(true, Ordering::Release);
    }

    pub(crate) fn take_sweep(&self) -> bool {
        self.sweep.swap(false, Ordering::AcqRel)
    }
}
