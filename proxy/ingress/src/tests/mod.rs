//! Tests of ingress with real sockets and pods that are tasks.

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
mod http2_pods;
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

/// A safeguard to remove, which tests must detect.
#[derive(Clone)]
pub(super) enum Ablation {
    GateNotLookedAt,
    /// All pods have the same address.
    PoolPerAddress(Arc<Pools>),
}

thread_local! {
    static ABLATION: RefCell<Option<Ablation>> = const { RefCell::new(None) };
}

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

fn ablate(ablation: Ablation) {
    ABLATION.set(Some(ablation));
}
