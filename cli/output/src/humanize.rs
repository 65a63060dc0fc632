//! Human-readable values: ages, amounts of memory, cores, labels.

pub use client::shorten;
pub use daemon::system_error;
use std::collections::BTreeMap;

use jiff::Timestamp;

/// In one unit: `12s`, `5m`, `3h`, `9d`. A future time gives `0s`, an invalid one `-`.
pub fn age(rfc3339: &str, now: Timestamp) -> String {
    match rfc3339.parse::<Timestamp>() {
        Ok(then) => span(now.as_second() - then.as_second()),
        Err(_) => "-".to_owned(),
    }
}

/// `in 5m`. A past time gives `now`, an invalid one `-`.
pub fn until(rfc3339: &str, now: Timestamp) -> String {
    match rfc3339.parse::<Timestamp>().map(|then| then.as_second() - now.as_second()) {
        Ok(seconds) if seconds > 0 => format!("in {}", span(seconds)),
        Ok(_) => "now".to_owned(),
        Err(_) => "-".to_owned(),
    }
}

fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `340 ms`, `12.3 s` or `5m`.
pub fn milliseconds(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{}m", ms / 60_000),
        _ => format!("{}h", ms / 3_600_000),
    }
}

/// `64 MiB`.
pub fn bytes(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string().replace(".0 ", " ")
}

/// Thousandths of a core as cores: `0.5`.
pub fn cores(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1 pod` or `2 pods`.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

pub fn labels(labels: &BTreeMap<String, String>) -> Vec<String> {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Cuts in the middle: engines name the cause at the end.
pub fn shorten_message(text: &str, max: usize) -> String {
    let line: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() <= max {
        return line.into_iter().collect();
    }
    let head = max.saturating_sub(1) / 3;
    let end = &line[line.len() - max.saturating_sub(1 + head)..];
    let begin = end.iter().take(end.len() / 3).position(|c| *c == ' ').map_or(0, |at| at + 1);
    line[..head].iter().chain(&['…']).chain(&end[begin..]).collect()
}

/// Foreign text must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let now: Timestamp = "2025-01-10T00:00:00Z".parse().unwrap();
        for (then, shown) in [
            ("2025-01-10T00:00:00Z", "0s"),
            ("2025-01-10T00:00:09Z", "0s"),
            ("2025-01-09T23:58:01Z", "119s"),
            ("2025-01-09T23:55:00Z", "5m"),
            ("2025-01-09T20:55:00.123Z", "3h"),
            ("2025-01-01T00:00:00Z", "9d"),
            ("", "-"),
        ] {
            assert_eq!(age(then, now), shown, "{then}");
        }
    }

    #[test]
    fn amounts_have_units() {
        assert_eq!((bytes(64 << 20).as_str(), bytes(0).as_str()), ("64 MiB", "0 B"));
        assert_eq!(bytes(1_610_612_736), "1.5 GiB");
        assert_eq!((cores(500).as_str(), cores(2000).as_str(), cores(1250).as_str()), ("0.5", "2", "1.25"));
        assert_eq!((count(1, "pod"), count(0, "pod")), ("1 pod".to_owned(), "0 pods".to_owned()));
    }

    #[test]
    fn a_shortened_message_keeps_its_cause() {
        let message = "driver failed programming external connectivity on endpoint web-2-81941847cf \
                       (94ea53c2a4d1f3b05c6a): Bind for 127.0.0.1:8080 failed: port is already allocated";
        for max in [80, 160] {
            let short = shorten_message(message, max);
            assert!(short.ends_with("failed: port is already allocated"), "{short}");
            assert!(short.starts_with("driver failed") && short.chars().count() <= max, "{short}");
        }
    }

    #[test]
    fn texts_are_shortened_and_control_characters_replaced() {
        assert_eq!(shorten("a\nbc", 4), "a bc");
        assert_eq!(shorten("éééé", 3), "éé…");
        assert_eq!(shorten_message("a\nbc", 4), "a bc");
        assert_eq!(shorten_message("0123456789", 7), "01…6789");
        assert_eq!(shorten_message("0123456789", 0), "…");
        assert_eq!(printable("a\x1b[31m\nb"), "a\u{fffd}[31m\nb");
    }
}
