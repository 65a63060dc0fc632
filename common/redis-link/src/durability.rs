//! Whether a write would survive the loss of the master.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// By every replica that could become the master.
    Confirmed {
        /// With the write.
        replicas: usize,
    },
    Unconfirmed {
        confirmed: usize,
        /// 0 if the master could not be asked.
        known: usize,
    },
    /// There are no replicas.
    SingleMachine,
}
