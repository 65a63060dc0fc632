//! The requests of all services' pods: the profile `fragmentation` keeps room for them.

use std::collections::BTreeMap;

use model::node::Resources;
use model::service::Service;
use store::{Store, StoreError};

/// The others are rare.
const MAX_KINDS: usize = 64;

/// Returns different requests, with their numbers of pods, the most frequent first. Unreadable services are
/// left out.
pub async fn read_needs(store: &Store) -> Result<Vec<(Resources, u64)>, StoreError> {
    let names = store.service_names().await?;
    let services = store.services(&names).await?.found();
    Ok(most_frequent_of(services.iter()))
}

pub(crate) fn most_frequent_of<'a>(services: impl Iterator<Item = &'a Service>) -> Vec<(Resources, u64)> {
    let wanted = services.filter(|service| service.pod.kind.is_service());
    most_frequent(wanted.map(|service| (service.pod.request(), u64::from(service.wanted_pods()))))
}

fn most_frequent(requests: impl Iterator<Item = (Resources, u64)>) -> Vec<(Resources, u64)> {
    let mut counts: BTreeMap<[u64; 5], (Resources, u64)> = BTreeMap::new();
    for (request, pods) in requests {
        counts.entry(request.to_array()).or_insert((request, 0)).1 += pods;
    }
    let mut needs: Vec<_> = counts.into_values().filter(|(_, pods)| *pods > 0).collect();
    // Stable: equally frequent ones stay in the order of their amounts.
    needs.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
    needs.truncate(MAX_KINDS);
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(memory_bytes: u64) -> Resources {
        Resources { memory_bytes, ..Resources::default() }
    }

    #[test]
    fn equal_requests_are_counted_together_and_the_most_frequent_come_first() {
        let asked = [(request(1), 2), (request(2), 3), (request(3), 0), (request(1), 2), (request(4), 3)];
        let needs = most_frequent(asked.into_iter());
        assert_eq!(needs, [(request(1), 4), (request(2), 3), (request(4), 3)]);
        let many = (0..100).map(|memory| (request(memory), memory + 1));
        assert_eq!(most_frequent(many).len(), MAX_KINDS);
    }
}
