//! Tests of ingress with real sockets and pods that are tasks.

mod fixture;
mod hand_over;
mod http;
mod malformed;
mod tcp;

use std::cell::RefCell;
use std::sync::Arc;

use super::connection::Pools;

/// A safeguard that is taken out: the tests must notice.
#[derive(Clone)]
pub(super) enum Ablation {
    /// The gate counts, but lets everything in.
    GateNotLookedAt,
    /// One pool for all pods, which have the same address.
    PoolPerAddress(Arc<Pools>),
}

thread_local! {
    static ABLATION: RefCell<Option<Ablation>> = const { RefCell::new(None) };
}

/// Returns the ablation of this test.
pub(super) fn ablation() -> Option<Ablation> {
    ABLATION.with_borrow(Clone::clone)
}

impl Ablation {
    pub(super) fn pools(&self) -> Option<Arc<Pools>> {
        match self {
            Ablation::PoolPerAddress(pools) => Some(pools.clone()),
            Ablation::GateNotLookedAt => None,
        }
    }
}

/// Takes a safeguard out of what this test starts next.
fn ablate(ablation: Ablation) {
    ABLATION.set(Some(ablation));
}
