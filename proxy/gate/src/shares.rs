//! Limits each client's concurrent use, so that one cannot starve the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

#[derive(Debug)]
pub struct Shares {
    most: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
pub struct TakenPlace {
    shares: Arc<Shares>,
    client: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    All,
    OfClient,
}

impl Shares {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, counts: Mutex::default() })
    }

    pub fn take(self: &Arc<Self>, client: IpAddr, most_of_client: usize) -> Result<TakenPlace, NoPlace> {
        self.take_if(client, |own, free| free > 0 && own < most_of_client)
    }

    /// The client must also have fewer places than are free: one greedy client gets half of all, `n` get
    /// 1/(n+1) each.
    pub fn take_fairly(
        self: &Arc<Self>,
        client: IpAddr,
        most_of_client: usize,
    ) -> Result<TakenPlace, NoPlace> {
        self.take_if(client, |own, free| own < free && own < most_of_client)
    }

    fn take_if(
        self: &Arc<Self>,
        client: IpAddr,
        may: impl FnOnce(usize, usize) -> bool,
    ) -> Result<TakenPlace, NoPlace> {
        let mut counts = self.counts.lock();
        let free = self.most.saturating_sub(counts.all);
        let own = counts.by_client.get(&client).copied().unwrap_or_default();
        if !may(own, free) {
            return Err(if free == 0 { NoPlace::All } else { NoPlace::OfClient });
        }
        counts.by_client.insert(client, own + 1);
        counts.all += 1;
        Ok(TakenPlace { shares: self.clone(), client })
    }

    #[cfg(any(test, feature = "fixtures"))]
    pub fn count_of(&self, client: IpAddr) -> usize {
        self.counts.lock().by_client.get(&client).copied().unwrap_or_default()
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let mut counts = self.shares.counts.lock();
        counts.all -= 1;
        if let Some(count) = counts.by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn a_place_counts_in_all_and_for_its_client_until_it_is_dropped() {
        let shares = Shares::new(3);
        let place = shares.take(client(1), 1).unwrap();
        assert_eq!(shares.take(client(1), 1).unwrap_err(), NoPlace::OfClient);
        let others = [0; 2].map(|_| shares.take(client(2), 2).unwrap());
        assert_eq!(shares.take(client(3), 1).unwrap_err(), NoPlace::All);
        drop(place);
        assert_eq!(shares.take(client(2), 2).unwrap_err(), NoPlace::OfClient);
        drop((shares.take(client(1), 1).unwrap(), others));
        let counts = shares.counts.lock();
        assert!(counts.by_client.is_empty() && counts.all == 0);
    }

    #[test]
    fn however_many_clients_want_all_places_another_one_gets_some() {
        for greedy in 1..=20 {
            let shares = Shares::new(1024);
            let mut taken = Vec::new();
            let mut counts = vec![0_usize; usize::from(greedy)];
            for number in (0..greedy).cycle().take(usize::from(greedy) * 1024) {
                if let Ok(place) = shares.take_fairly(client(number), usize::MAX) {
                    taken.push(place);
                    counts[usize::from(number)] += 1;
                }
            }
            let share = 1024 / (usize::from(greedy) + 1);
            assert!(counts.iter().all(|count| count.abs_diff(share) <= 1), "{greedy}: {counts:?}");
            let quiet: Vec<_> =
                (0..10).map(|_| shares.take_fairly(client(99), usize::MAX).unwrap()).collect();
            drop((quiet, taken));
        }
        let shares = Shares::new(100);
        let _one = shares.take_fairly(client(1), 1).unwrap();
        assert_eq!(shares.take_fairly(client(1), 1).unwrap_err(), NoPlace::OfClient);
    }
}
