//! Hints on the channel of a worker. They may be lost: a worker also finds their subjects without them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerHint {
    /// The next heartbeat returns the pods to stop.
    Stop,
    /// The record of an ended pod was deleted.
    Discard,
    /// Report volumes, or remove some.
    Volumes,
    /// Requests wait in the list of the node.
    Requests,
    /// A recovery waits for the saved pods.
    Recovery,
    Missed,
}

impl WorkerHint {
    const ALL: [Self; 6] =
        [Self::Stop, Self::Discard, Self::Volumes, Self::Requests, Self::Recovery, Self::Missed];

    /// `None` for a message of another program.
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
