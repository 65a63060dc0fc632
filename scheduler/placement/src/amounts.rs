//! Formats amounts: requests rounded up, free amounts down, so that no explanation reads "needs 2 GiB, 2 GiB
//! free".

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

pub(crate) fn bytes_rounded_down(bytes: u64) -> String {
    format_bytes(bytes, |amount, unit| amount * 100 / unit)
}

pub(crate) fn bytes_rounded_up(bytes: u64) -> String {
    format_bytes(bytes, |amount, unit| (amount * 100).div_ceil(unit))
}

fn format_bytes(bytes: u64, hundredths: fn(u128, u128) -> u128) -> String {
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{} {name}", hundredths(bytes.into(), unit.into()) as f64 / 100.0),
        None => format!("{bytes} B"),
    }
}

pub(crate) fn cores(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_readable_and_rounded_to_the_safe_side() {
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
            let formatted = (bytes_rounded_down(bytes), bytes_rounded_up(bytes));
            assert_eq!((formatted.0.as_str(), formatted.1.as_str()), (down, up), "{bytes}");
        }
        assert_eq!(format!("{} {}", cores(500), cores(2000)), "0.5 2");
        assert_eq!(seconds(Duration::from_millis(27_300)), "27.3 s");
    }
}
