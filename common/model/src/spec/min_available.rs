//! `min_available`: how many replicas of a service stay in service while its pods are moved.
//!
//! Tests: beside the code, scheduler::reconcile::moving

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units;

/// A number of replicas, or a part of them in percent, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinAvailable {
    Replicas(u32),
    Percent(u32),
}

impl MinAvailable {
    pub fn of(self, replicas: usize) -> usize {
        match self {
            Self::Replicas(count) => (count as usize).min(replicas),
            Self::Percent(percent) => (replicas * percent as usize).div_ceil(100),
        }
    }
}

impl fmt::Display for MinAvailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for MinAvailable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str, max: u32| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| is_number && *number <= max)
        };
        let found = match text.trim().strip_suffix('%') {
            Some(percent) => number(percent, 100).map(Self::Percent),
            None => number(text.trim(), super::MAX_REPLICAS).map(Self::Replicas),
        };
        found.ok_or_else(|| format!("{text:?} is no part of the replicas: write a number, or 0% to 100%"))
    }
}

impl Serialize for MinAvailable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Replicas(count) => serializer.serialize_u32(*count),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for MinAvailable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        units::parsed(deserializer, "a number of replicas, or a part of them such as \"75%\"")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_or_a_part_rounded_up() {
        for (written, replicas, expected) in [
            (json!(2), 3, 2),
            (json!("2"), 1, 1),
            (json!(0), 3, 0),
            (json!("75%"), 3, 3),
            (json!("75%"), 4, 3),
            (json!("0%"), 4, 0),
            (json!("100%"), 4, 4),
        ] {
            let read: MinAvailable = serde_json::from_value(written.clone()).expect("it is valid");
            assert_eq!(read.of(replicas), expected, "{written}");
            let again = serde_json::to_value(read).expect("it is a number or a text");
            assert_eq!(serde_json::from_value::<MinAvailable>(again).ok(), Some(read));
        }
        for wrong in [json!(-1), json!(1.5), json!("101%"), json!("%"), json!("+1"), json!("most"), json!([])]
        {
            assert!(serde_json::from_value::<MinAvailable>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
