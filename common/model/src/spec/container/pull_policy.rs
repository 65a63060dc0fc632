//! `pull_policy`: the condition for pulling a container's image.

use serde::{Deserialize, Serialize};

/// When the image of a container is pulled, as Compose has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    /// Each time that a container is created, but for what the first pod of its generation has pinned. A
    /// container that is started again keeps its image.
    Always,
    /// If the engine does not have it. `if_not_present` is the same.
    #[default]
    #[serde(alias = "if_not_present")]
    Missing,
    /// Never: the pod waits until the engine of its node has the image.
    Never,
}

impl std::str::FromStr for PullPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "missing" | "if_not_present" => Ok(Self::Missing),
            "never" => Ok(Self::Never),
            _ => Err(format!("{text:?} is no policy: write always, missing or never")),
        }
    }
}
