//! The goals of `--wait`.

use api_types::ServiceView;
use model::event::{ClusterEvent, ObjectKind};
use model::ids::PodId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Pods of this generation or a later one are ready.
    Ready { service: String, generation: u64 },
    /// By themselves, with any exit code.
    Ended { service: String },
    /// The last pod is gone, too.
    ServiceGone { service: String },
    /// The pod is stopped or forgotten.
    PodGone {
        id: PodId,
        /// `web-0`.
        name: String,
    },
}

impl Goal {
    pub(crate) fn ready(service: &ServiceView) -> Self {
        Self::Ready { service: service.name.to_string(), generation: service.generation }
    }

    pub(super) fn subject(&self) -> String {
        match self {
            Goal::Ready { service, .. } | Goal::Ended { service } | Goal::ServiceGone { service } => {
                service.clone()
            }
            Goal::PodGone { id, name } => format!("{name} ({})", id.short()),
        }
    }

    pub(super) fn describe_command(&self) -> String {
        match self {
            Goal::Ready { service, .. } | Goal::Ended { service } | Goal::ServiceGone { service } => {
                format!("service describe {service}")
            }
            Goal::PodGone { id, .. } => format!("pod describe {id}"),
        }
    }

    /// Scripts may rely on it.
    pub(super) fn success_word(&self) -> &'static str {
        match self {
            Goal::Ready { .. } => "ready",
            Goal::Ended { .. } => "ended",
            Goal::ServiceGone { .. } | Goal::PodGone { .. } => "gone",
        }
    }

    pub(super) fn concerns(&self, event: &ClusterEvent) -> bool {
        match self {
            Goal::Ready { service, .. } | Goal::Ended { service } | Goal::ServiceGone { service } => {
                match event.kind {
                    ObjectKind::Pod => event.name == *service,
                    ObjectKind::Service => event.object == *service,
                    ObjectKind::Node | ObjectKind::Queue | ObjectKind::Cluster => false,
                }
            }
            Goal::PodGone { id, .. } => event.kind == ObjectKind::Pod && event.object == id.as_str(),
        }
    }
}
