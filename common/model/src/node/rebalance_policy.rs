//! When pods that run are moved without being asked.
//!
//! Tests: beside the code

use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RebalancePolicy {
    /// After a node has joined, or came back.
    pub joined: bool,
    /// A pod leaves a node that has been under pressure for a while.
    pub pressure: bool,
}

impl FromStr for RebalancePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut policy = Self::default();
        if text == "off" {
            return Ok(policy);
        }
        for reason in text.split(',') {
            match reason.trim() {
                "joined" => policy.joined = true,
                "pressure" => policy.pressure = true,
                _ => {
                    return Err(format!("{text:?}: write joined, pressure, or both with a comma; or off"));
                }
            }
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reasons_may_be_named() {
        let policy = |joined, pressure| Ok(RebalancePolicy { joined, pressure });
        for (text, expected) in [
            ("off", policy(false, false)),
            ("joined", policy(true, false)),
            ("pressure", policy(false, true)),
            ("joined, pressure", policy(true, true)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in ["", "on", "joined,off", "Joined"] {
            assert!(text.parse::<RebalancePolicy>().is_err_and(|why| why.contains("write joined")), "{text}");
        }
    }
}
