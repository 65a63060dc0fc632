//! Time zones.

use std::fmt;

use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const UTC: &str = "UTC";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
}

impl Zone {
    pub fn problem(&self) -> Option<String> {
        self.name.parse::<Self>().err()
    }

    pub fn time_zone(&self) -> TimeZone {
        // The checks reject an unknown zone.
        TimeZone::get(&self.name).unwrap_or(TimeZone::UTC)
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: UTC.to_owned() }
    }
}

impl std::str::FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = TimeZone::get(text).ok();
        let name = found.as_ref().and_then(TimeZone::iana_name).map(str::to_owned);
        let name = name.ok_or_else(|| {
            format!("{text:?} is no time zone: write the name of one, such as Europe/Berlin, America/New_York or UTC")
        })?;
        Ok(Self { name })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Keeps any text, like [`super::Schedule`].
impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(name.parse().unwrap_or(Self { name }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_names() {
        for name in ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"] {
            assert_eq!(name.parse::<Zone>().map(|zone| zone.to_string()), Ok(name.to_owned()));
        }
        for text in ["", "Berlin", "CEST", "+02:00", "Europe/Atlantis", "../../etc/passwd"] {
            let error = text.parse::<Zone>().expect_err(text);
            assert!(error.contains("such as Europe/Berlin"), "{error}");
        }
    }
}
