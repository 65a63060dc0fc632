//! `priority` of a service: which pods are placed first if there is not enough room for all; `preemption`:
//! whether others are stopped for them.
//!
//! Tests: beside the code, pending::priorities

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::units;

/// From -1000 to 1000; 0 is that of services without one, and of pushed pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i16);

impl Priority {
    pub const MAX: i16 = 1000;

    pub fn new(priority: i16) -> Option<Self> {
        (-Self::MAX..=Self::MAX).contains(&priority).then_some(Self(priority))
    }

    pub fn get(self) -> i16 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok().and_then(Self::new);
        number.ok_or_else(|| format!("{text:?} is no priority: write a whole number from -1000 to 1000"))
    }
}

impl Serialize for Priority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i16(self.0)
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        units::parsed(deserializer, "a whole number from -1000 to 1000")
    }
}

/// Whether pods of a lower priority are stopped for pods of the service that fit nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemption {
    /// Only for a priority above 0.
    Lower,
    Never,
}

impl Preemption {
    /// Without the field pods are stopped for those of a priority above 0.
    pub fn applies(of_service: Option<Self>, priority: Priority) -> bool {
        of_service != Some(Self::Never) && priority.get() > 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_number_within_its_limits() {
        for (written, expected) in
            [(json!(0), 0), (json!("10"), 10), (json!(-1000), -1000), (json!(1000), 1000), (json!("-5"), -5)]
        {
            let read: Priority = serde_json::from_value(written.clone()).expect("it is valid");
            assert_eq!(read.get(), expected, "{written}");
            assert_eq!(serde_json::to_value(read).expect("it is a number"), json!(expected));
        }
        for wrong in
            [json!(1001), json!(-1001), json!(1.5), json!("high"), json!(""), json!([]), json!(70_000)]
        {
            assert!(serde_json::from_value::<Priority>(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(Priority::new(1) > Priority::new(0) && Priority::new(0) > Priority::new(-1));
    }
}
