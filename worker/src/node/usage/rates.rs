//! Usage from two counts. Pure.

use std::time::Duration;

use engine::Counters;
use model::node::usage::Usage;

/// Rates are unknown if a count went back, because it restarted.
pub(crate) fn between(before: Option<&Counters>, now: &Counters, span: Duration) -> Usage {
    let rate = |count: fn(&Counters) -> Option<u64>, unit: f64| {
        let grown = count(now)?.checked_sub(count(before?)?)?;
        (!span.is_zero()).then(|| (grown as f64 * unit / span.as_secs_f64()).round() as u64)
    };
    Usage {
        // Microseconds in a second are millionths of a core.
        cpu_millis: rate(|counters| counters.cpu_micros, 0.001),
        cpu_throttled_millis: rate(|counters| counters.throttled_micros, 0.001),
        memory_limit_bytes: now.memory_limit_bytes,
        memory_bytes: now.memory_bytes,
        read_bytes_per_second: rate(|counters| counters.read_bytes, 1.0),
        write_bytes_per_second: rate(|counters| counters.write_bytes, 1.0),
        psi: now.psi,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_what_was_counted_in_between() {
        let counters = |cpu: u64, read: u64| Counters {
            cpu_micros: Some(cpu),
            memory_bytes: Some(100),
            read_bytes: Some(read),
            ..Counters::default()
        };
        let usage = |cpu_millis, read_bytes_per_second| Usage {
            cpu_millis,
            memory_bytes: Some(100),
            read_bytes_per_second,
            ..Usage::default()
        };
        let span = Duration::from_secs(2);
        let cases = [
            ("busy", Some(counters(1_000_000, 10)), counters(3_000_000, 4106), usage(Some(1000), Some(2048))),
            ("idle", Some(counters(5, 10)), counters(5, 10), usage(Some(0), Some(0))),
            ("new", None, counters(3_000_000, 10), usage(None, None)),
            ("begun again", Some(counters(3_000_000, 0)), counters(1, 2), usage(None, Some(1))),
            ("first uncounted", Some(Counters::default()), counters(9, 9), usage(None, None)),
        ];
        for (name, before, now, expected) in cases {
            assert_eq!(between(before.as_ref(), &now, span), expected, "{name}");
        }
        let at_once = between(Some(&counters(1, 1)), &counters(2, 2), Duration::ZERO);
        assert_eq!(at_once, usage(None, None), "no time has passed");
    }
}
