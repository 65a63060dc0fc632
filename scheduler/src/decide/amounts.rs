//! Amounts in words, for the sentences of refusals.
//!
//! What is needed is rounded up and what is free is rounded down, so that a sentence never reads "needs 2 GiB,
//! 2 GiB free".

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Bytes, never more than there are: "1.2 GiB".
pub(super) fn bytes_down(bytes: u64) -> String {
    bytes_with(bytes, |amount, unit| amount * 100 / unit)
}

/// Bytes, never fewer than there are.
pub(super) fn bytes_up(bytes: u64) -> String {
    bytes_with(bytes, |amount, unit| (amount * 100).div_ceil(unit))
}

fn bytes_with(bytes: u64, hundredths: fn(u128, u128) -> u128) -> String {
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{} {name}", hundredths(bytes.into(), unit.into()) as f64 / 100.0),
        None => format!("{bytes} B"),
    }
}

/// Thousandths of a core as cores: "0.5".
pub(super) fn cores(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

/// A span in seconds: "27.3 s".
pub(super) fn seconds(span: Duration) -> String {
    format!("{} s", span.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well_and_never_lie() {
        let gib = 1 << 30;
        for (bytes, down, up) in [
            (0, "0 B", "0 B"),
            (1023, "1023 B", "1023 B"),
            (64 << 20, "64 MiB", "64 MiB"),
            (2 * gib, "2 GiB", "2 GiB"),
            (2 * gib - 1, "1.99 GiB", "2 GiB"),
            (2 * gib + 1, "2 GiB", "2.01 GiB"),
            (6 * gib / 5, "1.19 GiB", "1.2 GiB"),
            (u64::MAX, "16777215.99 TiB", "16777216 TiB"),
        ] {
            assert_eq!((bytes_down(bytes).as_str(), bytes_up(bytes).as_str()), (down, up), "{bytes}");
        }
        assert_eq!(format!("{} {}", cores(500), cores(2000)), "0.5 2");
        assert_eq!(seconds(Duration::from_millis(27_300)), "27.3 s");
    }
}
