//! A line of merged logs, as the API streams it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::{ContainerName, NodeName, PodId};

/// A line of a log, or a mark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LogItemView {
    /// When it was written, on the clock of its node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub time: String,
    /// Name of the pod with its index, such as `web-0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// Uuid of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<PodId>,
    /// The container, if the pod has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
    /// Node that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The text of the line, without its end.
    pub text: String,
    /// A note to the reader, such as that lines were skipped. Then there is no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
}
