//! Whether a write would survive the loss of the master.

/// The durability of a write after waiting for the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every replica that could become the master has the write: it survives a failover.
    Confirmed {
        /// Number of replicas with the write.
        replicas: usize,
    },
    /// The master has the write, but not all replicas confirmed it in time.
    Unconfirmed {
        /// Number of replicas that confirmed it.
        confirmed: usize,
        /// Number of replicas that must confirm it; 0 if the master could not be asked.
        known: usize,
    },
    /// The master has the write, and there are no replicas.
    SingleMachine,
}
