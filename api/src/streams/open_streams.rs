//! Limits streams in total and per client: each one costs Redis work.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::network::address_range::client_network;
use parking_lot::Mutex;

use crate::http::connections::ClientAddress;
use crate::http::problem::{ApiProblem, ProblemKind};

#[derive(Clone)]
pub(crate) struct OpenStreams {
    max: usize,
    max_per_client: usize,
    open: Arc<Mutex<HashMap<Option<IpAddr>, usize>>>,
}

impl OpenStreams {
    /// Half of the connections may be streams, and a quarter of these per client.
    pub(crate) fn new(max_connections: usize) -> Self {
        let max = (max_connections / 2).max(1);
        Self { max, max_per_client: (max / 4).max(1), open: Arc::default() }
    }

    /// The stream counts until the guard is dropped.
    pub(crate) fn begin(&self, client: Option<ClientAddress>) -> Result<StreamGuard, ApiProblem> {
        let client = client.map(|ClientAddress(address)| client_network(address));
        let mut open = self.open.lock();
        let of_client = open.get(&client).copied().unwrap_or_default();
        let detail = if of_client >= self.max_per_client {
            format!("this client has {of_client} streams open; end one, or read without following")
        } else if open.values().sum::<usize>() >= self.max {
            format!("{} streams are open, which is the limit; try again later", self.max)
        } else {
            open.insert(client, of_client + 1);
            return Ok(StreamGuard { streams: self.clone(), client });
        };
        Err(ApiProblem::new(ProblemKind::TooManyStreams, detail))
    }
}

pub(crate) struct StreamGuard {
    streams: OpenStreams,
    client: Option<IpAddr>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        if let Some(count) = open.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn streams_are_limited_in_all_and_for_each_client() {
        let streams = OpenStreams::new(32);
        let client = |n: u8| Some(ClientAddress(IpAddr::from([10, 0, 0, n])));
        let mut held: Vec<StreamGuard> = (0..4).map(|_| streams.begin(client(1)).unwrap()).collect();
        assert_eq!(streams.begin(client(1)).err().unwrap().kind, ProblemKind::TooManyStreams);
        for n in 2..=4 {
            held.extend((0..4).map(|_| streams.begin(client(n)).unwrap()));
        }
        assert!(streams.begin(client(5)).is_err(), "all places are taken");
        held.clear();
        let of_network = |n: u16| Some(ClientAddress(IpAddr::from([0x2001, 0xdb8, 0, 0, n, 0, 0, 1])));
        held.extend((0..4).map(|n| streams.begin(of_network(n)).unwrap()));
        assert!(streams.begin(of_network(4)).is_err(), "a client has all addresses of its network");
        held.clear();
        assert!(streams.begin(client(1)).is_ok());
        assert!(streams.open.lock().is_empty());
    }
}
