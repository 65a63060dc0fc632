//! Hints on the channel of a worker. They may be lost: a worker also finds their subjects itself.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerHint {
    Stop,
    Discard,
    /// Report volumes, or remove some.
    Volumes,
    Requests,
    Recovery,
    Missed,
}

impl WorkerHint {
    const ALL: [Self; 6] =
        [Self::Stop, Self::Discard, Self::Volumes, Self::Requests, Self::Recovery, Self::Missed];

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
