//! Values of flags, checked where they are typed.

use std::time::Duration;

/// `90s`, `2m`, `500ms`, or a number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    // Beyond a year the sum with the present moment may not exist.
    let sane = parsed.filter(|time| *time <= Duration::from_secs(365 * 86_400));
    sane.ok_or_else(|| format!("{text:?} is not a duration: write 90s, 2m or a number of seconds"))
}

/// `KEY=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=value")),
    }
}

/// The same, kept as it was typed.
pub(super) fn label(text: &str) -> Result<String, String> {
    pair(text).map(|_| text.to_owned())
}

/// One of the words that serde knows for a type.
pub(super) fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use common::spec::{OnDisconnect, RestartPolicy};

    #[test]
    fn durations_in_every_spelling() {
        for (text, millis) in
            [("2m", 120_000), ("90", 90_000), ("0.5", 500), ("500ms", 500), ("1h 1s", 3_601_000)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "soon", "-1", "NaN", "inf", "1e300", "99999y"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pairs_have_a_key() {
        assert_eq!(pair("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert_eq!(pair("A=").unwrap(), ("A".to_owned(), String::new()));
        assert!(pair("A").is_err() && pair("=b").is_err());
    }

    #[test]
    fn words_are_those_of_the_api() {
        assert_eq!(word::<RestartPolicy>("no").unwrap(), RestartPolicy::Never);
        assert_eq!(word::<OnDisconnect>("stop").unwrap(), OnDisconnect::Stop);
        assert!(word::<RestartPolicy>("sometimes").unwrap_err().contains("on-failure"));
    }
}
