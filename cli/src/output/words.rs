//! Numbers as people read them: ages, amounts of memory, cores.

use jiff::Timestamp;

/// How long ago something was, in one unit: `12s`, `5m`, `3h`, `9d`. A clock that runs ahead gives `0s`; no time, `-`.
pub(crate) fn age(rfc3339: &str, now: Timestamp) -> String {
    match rfc3339.parse::<Timestamp>() {
        Ok(then) => span(now.as_second() - then.as_second()),
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

/// Bytes in binary units.
pub(crate) fn bytes(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string().replace(".0 ", " ")
}

/// Thousandths of a core as cores.
pub(crate) fn cores(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1 pod`, `2 pods`.
pub(crate) fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// At most `most` characters, on one line.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match flat.char_indices().nth(most) {
        None => flat,
        Some(_) => flat.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Texts that come from elsewhere must not steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn ages() {
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
    fn amounts() {
        assert_eq!((bytes(64 << 20).as_str(), bytes(0).as_str()), ("64 MiB", "0 B"));
        assert_eq!(bytes(1_610_612_736), "1.5 GiB");
        assert_eq!((cores(500).as_str(), cores(2000).as_str(), cores(1250).as_str()), ("0.5", "2", "1.25"));
        assert_eq!((count(1, "pod"), count(0, "pod")), ("1 pod".to_owned(), "0 pods".to_owned()));
    }

    #[test]
    fn texts_are_cut_and_tamed() {
        assert_eq!(shorten("a\nbc", 4), "a bc");
        assert_eq!(shorten("éééé", 3), "éé…");
        assert_eq!(printable("a\x1b[31m\nb"), "a\u{fffd}[31m\nb");
    }
}
