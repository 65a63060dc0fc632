//! Whether a write would survive the loss of the master.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every replica that could become the master has the write: it survives a failover.
    Confirmed {
        /// With the write.
        replicas: usize,
    },
    /// Not all replicas confirmed it in time.
    Unconfirmed {
        /// Replicas that confirmed it.
        confirmed: usize,
        /// Replicas that must confirm it; 0 if the master could not be asked.
        known: usize,
    },
    /// There are no replicas.
    SingleMachine,
}
