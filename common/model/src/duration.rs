//! Durations in settings, flags and specifications.

use std::time::Duration;

/// Read from `90s`, `500ms`, `1h 30m`, or a number of seconds such as `90` or `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(Duration);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write 90s, 2m, 500ms or a number of seconds")]
pub struct InvalidDuration(String);

impl HumanDuration {
    pub fn get(self) -> Duration {
        self.0
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl std::str::FromStr for HumanDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let duration = match text.parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Err(_) => humantime::parse_duration(text).ok(),
        };
        duration.map(Self).ok_or_else(|| InvalidDuration(text.to_owned()))
    }
}

/// `first` doubled `failures` times, but at most `max` (or `first`, if that is longer).
pub fn delay(first: Duration, max: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(30)).min(max.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_every_spelling() {
        let table = [
            ("2m", 120_000),
            ("90", 90_000),
            ("0.5", 500),
            ("500ms", 500),
            ("1h 1s", 3_601_000),
            ("0", 0),
            ("0s", 0),
        ];
        for (text, millis) in table {
            let duration: HumanDuration = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(duration.get(), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_duration() {
        for text in ["", "soon", "-1", "NaN", "inf", "1e300", "5 parsecs"] {
            let error = text.parse::<HumanDuration>().expect_err(text);
            assert!(error.to_string().contains("90s"), "{error}");
        }
    }
}
