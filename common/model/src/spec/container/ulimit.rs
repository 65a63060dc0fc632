//! Resource limits of each process in a container.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

/// `nice`, `rtprio` and `rttime` would take time from other pods.
pub const ULIMITS: [&str; 12] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nofile",
    "nproc",
    "rss",
    "sigpending",
    "stack",
];

/// -1 is unlimited. Read from one number, or from `soft` and `hard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ulimit {
    pub soft: i64,
    pub hard: i64,
}

impl Ulimit {
    pub(super) fn problem(self, name: &str) -> Option<String> {
        if !ULIMITS.contains(&name) {
            return Some(format!("{name:?} cannot be limited: one of {}", ULIMITS.join(", ")));
        }
        if self.soft < -1 || self.hard < -1 {
            return Some("a limit is a number from 0, or -1 for none".to_owned());
        }
        let is_above = self.hard != -1 && (self.soft == -1 || self.soft > self.hard);
        is_above.then(|| "the soft limit is above the hard one".to_owned())
    }
}

impl Serialize for Ulimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.soft == self.hard {
            return serializer.serialize_i64(self.soft);
        }
        let mut both = serializer.serialize_struct("Ulimit", 2)?;
        both.serialize_field("soft", &self.soft)?;
        both.serialize_field("hard", &self.hard)?;
        both.end()
    }
}

impl<'de> Deserialize<'de> for Ulimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Both {
            soft: Limit,
            hard: Limit,
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Ulimit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or a map with soft and hard")
            }
            fn visit_i64<E: de::Error>(self, limit: i64) -> Result<Ulimit, E> {
                Ok(Ulimit { soft: limit, hard: limit })
            }
            fn visit_u64<E: de::Error>(self, limit: u64) -> Result<Ulimit, E> {
                self.visit_i64(LimitReader.visit_u64(limit)?.0)
            }
            fn visit_f64<E: de::Error>(self, limit: f64) -> Result<Ulimit, E> {
                self.visit_i64(LimitReader.visit_f64(limit)?.0)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ulimit, A::Error> {
                let Both { soft, hard } = Both::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Ulimit { soft: soft.0, hard: hard.0 })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// JSON has one type for `3` and `3.0`.
struct Limit(i64);

struct LimitReader;

impl Visitor<'_> for LimitReader {
    type Value = Limit;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }
    fn visit_i64<E: de::Error>(self, limit: i64) -> Result<Limit, E> {
        Ok(Limit(limit))
    }
    fn visit_u64<E: de::Error>(self, limit: u64) -> Result<Limit, E> {
        i64::try_from(limit).map(Limit).map_err(|_| E::custom("the number is too large"))
    }
    fn visit_f64<E: de::Error>(self, limit: f64) -> Result<Limit, E> {
        // Up to 2^63 a whole number fits.
        match limit.fract() == 0.0 && limit.abs() < 9.2e18 {
            true => Ok(Limit(limit as i64)),
            false => Err(E::invalid_type(de::Unexpected::Float(limit), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitReader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_one_number_or_two() {
        for (json, soft, hard) in [
            ("5", 5, 5),
            ("-1", -1, -1),
            (r#"{"soft":1,"hard":2}"#, 1, 2),
            (r#"{"hard":-1,"soft":2}"#, 2, -1),
        ] {
            let limit: Ulimit = serde_json::from_str(json).unwrap();
            assert_eq!((limit.soft, limit.hard, limit.problem("nofile")), (soft, hard, None), "{json}");
            let again = serde_json::to_string(&limit).unwrap();
            assert_eq!(serde_json::from_str::<Ulimit>(&again).unwrap(), limit);
        }
        for bad in ["1.5", "\"5\"", "{}", r#"{"soft":1,"hard":2,"x":3}"#, "18446744073709551615"] {
            assert!(serde_json::from_str::<Ulimit>(bad).is_err(), "{bad}");
        }
        for (name, soft, hard) in [("nofile", 2, 1), ("nofile", -1, 1), ("nofile", -2, 1), ("rtprio", 1, 1)] {
            assert!(Ulimit { soft, hard }.problem(name).is_some(), "{name} {soft} {hard}");
        }
    }
}
