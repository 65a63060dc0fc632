//! Hints on the channel of a worker. They may be lost: what they announce is also found without them.

/// The meaning of a message on the channel of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerHint {
    /// Pods to stop, which the next heartbeat returns.
    Stop,
    /// The record of an ended pod was deleted.
    Discard,
    /// The worker must report its volumes, or remove some.
    Volumes,
    /// Requests wait in the list of the node.
    Requests,
    /// A recovery waits for the saved pods.
    Recovery,
    /// Messages were missed.
    Missed,
}

impl WorkerHint {
    const ALL: [Self; 6] =
        [Self::Stop, Self::Discard, Self::Volumes, Self::Requests, Self::Recovery, Self::Missed];

    /// Returns the hint of a message; `None` if another program sent it.
    pub fn read(message: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|hint| hint.text().as_bytes() == message)
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Discard => "discard",
            Self::Volumes => "volumes",
            Self::Requests => "requests",
            Self::Recovery => "recover",
            Self::Missed => "",
        }
    }
}
