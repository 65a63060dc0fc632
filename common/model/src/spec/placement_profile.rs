//! The ways in which a scheduler compares the nodes that can run a pod.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a scheduler compares the nodes that can run a pod.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementProfile {
    /// The fewest pods and the least pressure, replicas on different nodes and zones.
    #[default]
    Default,
    /// The least that is left.
    Pack,
    /// The fewest pods of the service, then the fewest pods.
    Spread,
    /// The smallest and most balanced part in use.
    Kubernetes,
    /// The fullest, as Nomad's bin packing.
    Nomad,
    /// The smallest marginal cost.
    Epvm,
    /// The most free CPU.
    Greedy,
    /// One after the other.
    RoundRobin,
    /// The least loss of room that other services could use.
    Fragmentation,
}

impl PlacementProfile {
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::Pack,
        Self::Spread,
        Self::Kubernetes,
        Self::Nomad,
        Self::Epvm,
        Self::Greedy,
        Self::RoundRobin,
        Self::Fragmentation,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Pack => "pack",
            Self::Spread => "spread",
            Self::Kubernetes => "kubernetes",
            Self::Nomad => "nomad",
            Self::Epvm => "epvm",
            Self::Greedy => "greedy",
            Self::RoundRobin => "round-robin",
            Self::Fragmentation => "fragmentation",
        }
    }
}

impl fmt::Display for PlacementProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PlacementProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("{text:?} is not a placement profile; there are {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_a_name_of_its_own_that_is_read_back() {
        for profile in PlacementProfile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
            assert_eq!(serde_json::to_value(profile).unwrap(), profile.as_str());
        }
        let refused = "Pack".parse::<PlacementProfile>().unwrap_err();
        assert!(
            refused.starts_with("\"Pack\" is not a placement profile; there are default, pack, "),
            "{refused}"
        );
    }
}
