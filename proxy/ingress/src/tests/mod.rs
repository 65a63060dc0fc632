//! Tests of ingress with real sockets and pods that are tasks.

/// Tests what holds wherever the pod is: with the pod on the host of the ingress, and with the pod on
/// another.
macro_rules! wherever_the_pod_is {
    ($($test:ident),* $(,)?) => {
        mod on_this_host {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Pods::OnThisHost).await;
            })*
        }

        mod on_another_host {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Pods::OnAnotherHost).await;
            })*
        }
    };
}
use wherever_the_pod_is;

mod answers;
pub(super) mod authority;
mod clients;
mod compared;
mod fixture;
mod hand_over;
mod http;
mod http2_clients;
mod https;
mod malformed;
mod other_host;
mod other_servers;
mod slow_clients;
mod take_over;
mod tcp;
mod upgrades;

use std::cell::RefCell;
use std::sync::Arc;

use crate::pod::connection::Pools;

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
