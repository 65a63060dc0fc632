//! This worker's lease: until it expires, no other worker may run its pods.
//!
//! Each heartbeat renews it until `fence_after` past the moment *before* that heartbeat was sent. The
//! [file](crate::fencing::lease_file) may be older than memory, never newer: a late write makes the next
//! worker stop more, not less.
//!
//! An expired lease is renewed only after the fence stopped the pods under it: even if a failover lost this
//! worker's death, they may run elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use daemon::clock::BootInstant;
use parking_lot::Mutex;
use store::RedisProcess;

use crate::fencing::lease_file::{LeaseGrant, LeaseStore, SavedLease};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    None,
    Valid(Duration),
    Expired(BootInstant),
}

pub(crate) struct Lease {
    /// Milliseconds on the boot clock; 0 if there is no lease.
    deadline: AtomicU64,
    /// The last expired lease whose pods the fence has stopped.
    fenced: AtomicU64,
    starts: AtomicUsize,
    granted_by: Mutex<Option<RedisProcess>>,
    store: Option<Arc<dyn LeaseStore>>,
}

pub(crate) struct StartPermit<'a>(&'a Lease);

impl Drop for StartPermit<'_> {
    fn drop(&mut self) {
        self.0.starts.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Lease {
    pub(crate) fn new(store: Option<Arc<dyn LeaseStore>>) -> Self {
        Self {
            deadline: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            starts: AtomicUsize::new(0),
            granted_by: Mutex::default(),
            store,
        }
    }

    pub(crate) fn load_saved(&self) -> SavedLease {
        match &self.store {
            Some(store) => store.load(),
            None => SavedLease::Unusable("this worker saves no lease".to_owned()),
        }
    }

    pub(crate) fn state(&self, now: BootInstant) -> LeaseState {
        let deadline = BootInstant { millis: self.deadline.load(Ordering::Acquire) };
        match deadline.millis {
            0 => LeaseState::None,
            _ if now < deadline => LeaseState::Valid(deadline.since(now)),
            _ => LeaseState::Expired(deadline),
        }
    }

    pub(crate) fn is_valid(&self, now: BootInstant) -> bool {
        matches!(self.state(now), LeaseState::Valid(_))
    }

    pub(crate) fn take_over(&self, lease: LeaseGrant) {
        *self.granted_by.lock() = Some(lease.granted_by);
        self.deadline.fetch_max(lease.deadline.millis, Ordering::AcqRel);
    }

    /// The start may outlast the lease. Until the permit is dropped an expired lease is not renewed: the
    /// fence may not have seen that container yet.
    pub(crate) fn permit_start(&self, now: BootInstant) -> Option<StartPermit<'_>> {
        self.starts.fetch_add(1, Ordering::AcqRel);
        let permit = StartPermit(self);
        self.is_valid(now).then_some(permit)
    }

    /// False while a start is in flight.
    pub(crate) fn mark_fenced(&self, deadline: BootInstant) -> bool {
        let is_complete = self.starts.load(Ordering::Acquire) == 0;
        if is_complete {
            self.fenced.store(deadline.millis, Ordering::Release);
        }
        is_complete
    }

    /// Never shortens the lease. Ignores an expired lease that is not yet fenced.
    pub(crate) fn renew(&self, now: BootInstant, deadline: BootInstant, redis: &RedisProcess) {
        if let LeaseState::Expired(expired) = self.state(now)
            && self.fenced.load(Ordering::Acquire) != expired.millis
        {
            return;
        }
        *self.granted_by.lock() = Some(redis.clone());
        let before = self.deadline.fetch_max(deadline.millis, Ordering::AcqRel);
        if let Some(store) = &self.store
            && before < deadline.millis
        {
            store.save(&LeaseGrant { deadline, granted_by: redis.clone() });
        }
    }

    /// `redis` does not know this cluster (any more). It must be the very process and database that granted
    /// the lease: then this worker was not declared dead before. Another Redis proves nothing: the cluster
    /// may go on elsewhere.
    pub(crate) fn prolong(&self, now: BootInstant, deadline: BootInstant, redis: &RedisProcess) {
        let is_granter = self.granted_by.lock().as_ref() == Some(redis);
        if is_granter && self.is_valid(now) {
            self.renew(now, deadline, redis);
        }
    }

    /// No container runs under it any more.
    pub(crate) fn give_up(&self) {
        self.deadline.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::path::PathBuf;

    use super::*;
    use crate::fencing::lease_file::LeaseFile;

    fn at(millis: u64) -> BootInstant {
        BootInstant { millis }
    }

    fn redis(process: &str) -> RedisProcess {
        RedisProcess(process.to_owned())
    }

    #[test]
    fn a_redis_that_lost_the_cluster_prolongs_only_a_valid_lease_that_it_has_granted_itself() {
        let lease = Lease::new(None);
        lease.prolong(at(5), at(100), &redis("r/0"));
        assert_eq!(lease.state(at(5)), LeaseState::None, "it never granted one");
        lease.renew(at(5), at(100), &redis("r/0"));
        for other in ["r/1", "s/0"] {
            lease.prolong(at(50), at(150), &redis(other));
            assert_eq!(lease.state(at(100)), LeaseState::Expired(at(100)), "another database or process");
        }
        lease.prolong(at(50), at(150), &redis("r/0"));
        assert!(lease.is_valid(at(149)));
        lease.prolong(at(150), at(300), &redis("r/0"));
        assert!(!lease.is_valid(at(150)), "too late");
    }

    #[test]
    fn a_lease_is_valid_until_its_deadline_and_never_gets_shorter() {
        let lease = Lease::new(None);
        assert_eq!(lease.state(at(5)), LeaseState::None);
        lease.renew(at(5), at(100), &redis("r/0"));
        lease.renew(at(5), at(50), &redis("r/0"));
        assert_eq!(lease.state(at(99)), LeaseState::Valid(Duration::from_millis(1)));
        assert_eq!(lease.state(at(100)), LeaseState::Expired(at(100)));
        lease.give_up();
        assert_eq!(lease.state(at(100)), LeaseState::None);
    }

    #[test]
    fn an_expired_lease_is_renewed_only_after_the_fence_has_done_its_work() {
        let lease = Lease::new(None);
        lease.renew(at(5), at(100), &redis("r/0"));
        lease.renew(at(100), at(200), &redis("r/0"));
        assert_eq!(lease.state(at(100)), LeaseState::Expired(at(100)));
        assert!(lease.mark_fenced(at(100)));
        lease.renew(at(100), at(200), &redis("r/0"));
        assert_eq!(lease.state(at(100)), LeaseState::Valid(Duration::from_millis(100)));
        lease.renew(at(200), at(300), &redis("r/0"));
        assert_eq!(lease.state(at(200)), LeaseState::Expired(at(200)), "each expiry needs the fence anew");
    }

    #[test]
    fn a_start_that_outlasts_the_lease_has_to_end_before_it_is_renewed() {
        let lease = Lease::new(None);
        assert!(lease.permit_start(at(5)).is_none());
        lease.renew(at(5), at(100), &redis("r/0"));
        let start = lease.permit_start(at(99));
        assert!(start.is_some() && lease.permit_start(at(100)).is_none());
        assert!(!lease.mark_fenced(at(100)));
        lease.renew(at(100), at(200), &redis("r/0"));
        assert_eq!(
            lease.state(at(100)),
            LeaseState::Expired(at(100)),
            "its container may appear at any moment"
        );
        drop(start);
        assert!(lease.mark_fenced(at(100)));
        lease.renew(at(100), at(200), &redis("r/0"));
        assert!(lease.is_valid(at(100)));
    }

    fn saved_to(path: PathBuf, boot_id: &str) -> Lease {
        let file = LeaseFile::new(path, boot_id.to_owned());
        file.check().unwrap();
        Lease::new(Some(Arc::new(file)))
    }

    #[tokio::test]
    async fn the_next_worker_reads_what_was_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/n.lease");
        let lease = saved_to(path.clone(), "boot");
        assert!(matches!(lease.load_saved(), SavedLease::Unusable(_)));
        lease.renew(at(5), at(1234), &redis("r/0"));
        testkit::eventually("the file is written", || async { path.exists() }).await;
        assert_eq!(
            lease.load_saved(),
            SavedLease::Lease(LeaseGrant { deadline: at(1234), granted_by: redis("r/0") })
        );

        let after_reboot = saved_to(path.clone(), "another boot");
        assert!(matches!(after_reboot.load_saved(), SavedLease::Unusable(why) if why.contains("reboot")));
        std::fs::write(&path, b"{").unwrap();
        assert!(matches!(lease.load_saved(), SavedLease::Unusable(why) if why.contains("cannot be read")));
    }
}
