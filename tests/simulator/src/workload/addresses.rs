//! Proxies ask for the addresses of services and slots, and tell them to pods once they are confirmed.
//!
//! An address leads to its service for as long as a pod may use it, also after a failover that lost writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::ServiceName;
use model::network::address::{AddressName, PoolAddress};
use parking_lot::Mutex;
use store::{GivenAddress, LinkOptions, Store};
use tokio::time::sleep;

use crate::machine::bus::{SharedBus, SimulatedNetwork};
use crate::machine::process_id::ProcessId;
use crate::machine::random::Random;
use crate::workload::images::SERVICES;

/// More than the names, of three services with four slots each.
pub(crate) const POOL_SIZE: &str = "20";
const SLOTS: usize = 4;
/// In milliseconds.
const NOT_REUSED_FOR: u64 = 3_600_000;
/// In milliseconds.
const MAX_PAUSE: u64 = 4_000;

pub(crate) type Learnt = Arc<Mutex<Vec<(AddressName, PoolAddress)>>>;

#[derive(Default)]
pub(crate) struct ToldAddresses {
    learnt: Learnt,
    by_address: BTreeMap<u32, Known>,
}

struct Known {
    name: AddressName,
    at: u64,
    /// Each master has its own clock, which decides when a number is free again.
    redis_earliest: u64,
    redis_passed: u64,
}

impl ToldAddresses {
    pub(crate) fn learnt(&self) -> Learnt {
        self.learnt.clone()
    }

    pub(crate) fn forget_since(&mut self, time: u64) {
        self.learnt.lock().clear();
        self.by_address.retain(|_, told| told.at < time);
    }

    /// Returns the addresses that now have two names.
    pub(crate) fn progress(&mut self, now: u64, redis_now: u64) -> Vec<String> {
        let mut found = Vec::new();
        for told in self.by_address.values_mut() {
            told.redis_earliest = told.redis_earliest.min(redis_now);
            told.redis_passed = told.redis_passed.max(redis_now - told.redis_earliest);
        }
        for (name, address) in std::mem::take(&mut *self.learnt.lock()) {
            let told = Known { name, at: now, redis_earliest: redis_now, redis_passed: 0 };
            let name = told.name.clone();
            let Some(before) = self.by_address.insert(address.number(), told) else { continue };
            if before.name != name && before.redis_passed < NOT_REUSED_FOR {
                found.push(format!(
                    "address {} is told as that of {} and of {name}",
                    address.number(),
                    before.name
                ));
            }
        }
        found
    }
}

pub(crate) async fn ask(bus: SharedBus, host: usize, instance: u64, mut random: Random, learnt: Learnt) {
    let network = SimulatedNetwork { bus, process: ProcessId::Proxy(host), instance, is_elsewhere: false };
    let url = "redis://simulated/0".parse().unwrap();
    let store = Store::with_transport(Arc::new(network), url, LinkOptions::default());
    loop {
        sleep(Duration::from_millis(random.between(0, MAX_PAUSE))).await;
        let service = ServiceName::new(SERVICES[random.below(SERVICES.len())]).unwrap();
        let slot = random.below(SLOTS + 1).checked_sub(1).map(|slot| slot as u32);
        let name = AddressName { service, slot };
        if let Ok(GivenAddress::Confirmed(address)) = store.address(&name).await {
            learnt.lock().push((name, address));
        }
    }
}
