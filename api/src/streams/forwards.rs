//! One use of `port-forward` is one event, however many connections it has.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ids::PodId;
use parking_lot::Mutex;

/// Between connections of one use.
const PAUSE: Duration = Duration::from_secs(60);

type Use = (PodId, u16, Option<IpAddr>);

#[derive(Clone, Default)]
pub(crate) struct Forwards(Arc<Mutex<HashMap<Use, Instant>>>);

impl Forwards {
    /// Returns true if the connection begins a use.
    pub(crate) fn record(&self, of: Use) -> bool {
        let mut uses = self.0.lock();
        let now = Instant::now();
        uses.retain(|_, last| now.duration_since(*last) < PAUSE);
        uses.insert(of, now).is_none()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn many_connections_to_a_port_are_one_use() {
        let forwards = Forwards::default();
        let of = |port| (PodId::new("p").unwrap(), port, None);
        let first = [80, 80, 81, 80].map(|port| forwards.record(of(port)));
        assert_eq!(first, [true, false, true, false]);
    }
}
