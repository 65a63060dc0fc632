//! The service whose pod has a caller's address.
//!
//! Tests: beside the code, names::tests::resolver

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use model::ids::ServiceName;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::gates::Gates;

/// A container may ask before its worker has told that it runs.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
const KNOWN_RETRY: Duration = Duration::from_millis(20);
/// An address that stayed unknown is not waited for again: the host itself, or a container of others.
const STRANGE_FOR: Duration = Duration::from_secs(10);
const MAX_STRANGERS: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<HashMap<IpAddr, Instant>>);

impl Strangers {
    fn has(&self, address: IpAddr) -> bool {
        self.0.lock().get(&address).is_some_and(|since| since.elapsed() < STRANGE_FOR)
    }

    fn add(&self, address: IpAddr) {
        let mut strangers = self.0.lock();
        if strangers.len() >= MAX_STRANGERS {
            strangers.clear();
        }
        strangers.insert(address, Instant::now());
    }
}

impl Gates {
    /// True if it is not known yet whether the caller is a pod: [`service_of_caller`] waits.
    ///
    /// [`service_of_caller`]: Self::service_of_caller
    pub fn may_become_known(&self, caller: IpAddr) -> bool {
        self.pod_at(caller).is_none() && !self.strangers.has(caller)
    }

    /// `None` also for a pod without a service.
    pub async fn service_of_caller(&self, caller: IpAddr) -> Option<ServiceName> {
        let deadline = Instant::now() + KNOWN_WITHIN;
        while self.may_become_known(caller) {
            if Instant::now() >= deadline {
                self.strangers.add(caller);
                return None;
            }
            sleep(KNOWN_RETRY).await;
        }
        self.service_at(caller)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use model::network::handover::LocalPod;

    use super::*;
    use crate::fixtures::local_pod;

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_waited_for_until_its_pod_is_known_and_a_stranger_once() {
        let gates = Arc::new(Gates::default());
        let pod = LocalPod { service: Some("web".parse().unwrap()), ..local_pod("web") };
        let asks = {
            let (gates, address) = (gates.clone(), pod.address);
            tokio::spawn(async move { gates.service_of_caller(address).await })
        };
        sleep(KNOWN_WITHIN / 2).await;
        gates.set(pod.clone());
        assert_eq!(asks.await.unwrap(), pod.service);

        let stranger: IpAddr = "192.0.2.1".parse().unwrap();
        let waited = async || {
            let begun = Instant::now();
            assert_eq!(gates.service_of_caller(stranger).await, None);
            begun.elapsed()
        };
        assert!(waited().await >= KNOWN_WITHIN);
        assert_eq!(waited().await, Duration::ZERO);
        sleep(STRANGE_FOR).await;
        assert!(waited().await >= KNOWN_WITHIN, "another container may have the address now");
    }
}
