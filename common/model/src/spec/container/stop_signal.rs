//! The signal that asks a container to stop.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::spec::units::parsed;

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// As C libraries count them.
const REAL_TIME_MIN: u8 = 34;
const MAX: u8 = 64;

/// Read from a number, or a name with or without `SIG`: `QUIT`, `SIGRTMIN+3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal(u8);

impl StopSignal {
    pub const HANG_UP: Self = Self(1);

    pub const KILL: Self = Self(9);

    pub fn number(self) -> i32 {
        self.0.into()
    }

    fn from_number(number: u64) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| (1..=MAX).contains(number)).map(Self)
    }
}

impl FromStr for StopSignal {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number = match name.strip_prefix("RTMIN") {
            Some("") => Some(REAL_TIME_MIN.into()),
            Some(rest) => rest
                .strip_prefix('+')
                .and_then(|n| n.parse::<u64>().ok())
                .map(|n| n.saturating_add(REAL_TIME_MIN.into())),
            None => match NAMES.iter().zip(1..).find(|(known, _)| **known == name) {
                Some((_, number)) => Some(number),
                None => name.parse().ok(),
            },
        };
        number.and_then(Self::from_number).ok_or_else(|| {
            format!("{text:?} is not a signal: write a name such as SIGTERM or SIGRTMIN+3, or a number from 1 to {MAX}")
        })
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(usize::from(self.0) - 1) {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for StopSignal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StopSignal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, "the name or the number of a signal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_in_every_spelling() {
        for (text, number, shown) in [
            ("SIGTERM", 15, "SIGTERM"),
            ("quit", 3, "SIGQUIT"),
            ("9", 9, "SIGKILL"),
            ("SIGRTMIN+3", 37, "37"),
            ("rtmin", 34, "34"),
            ("37", 37, "37"),
        ] {
            let signal: StopSignal = text.parse().unwrap();
            assert_eq!((signal.number(), signal.to_string().as_str()), (number, shown), "{text}");
            let json = serde_json::to_string(&signal).unwrap();
            assert_eq!(serde_json::from_str::<StopSignal>(&json).unwrap(), signal);
        }
        for bad in ["", "SIG", "TERMINATE", "0", "65", "SIGRTMIN+31", "SIGRTMIN-1", "-9", "SIGRTMIN+x"] {
            assert!(bad.parse::<StopSignal>().is_err(), "{bad}");
        }
    }
}
