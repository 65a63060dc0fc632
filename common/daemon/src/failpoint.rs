//! Failpoints: named steps at which a test can abort the process.
//!
//! `KUBELEET_FAILPOINT=redis.claim.after:3` aborts the process when it has received the reply to its third
//! `claim`. A step is `<boundary>.<call>.<before|after>`. The boundaries are `redis` (every script and
//! command of the store, by its name), `engine` (the worker's calls to its runtime) and `docker` (each
//! request to the Docker engine).
//!
//! They exist in builds with debug assertions only.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    /// The reply has arrived, and the caller has not seen it.
    After,
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn check(_boundary: &str, _call: &str, _side: Side) {}

/// Panics if `KUBELEET_FAILPOINT` is malformed.
#[cfg(debug_assertions)]
pub fn check(boundary: &str, call: &str, side: Side) {
    use std::sync::LazyLock;

    static ARMED: LazyLock<Option<Failpoint>> =
        LazyLock::new(|| std::env::var("KUBELEET_FAILPOINT").ok().map(|text| Failpoint::parse(&text)));
    if let Some(failpoint) = &*ARMED
        && failpoint.count_pass(boundary, call, side)
    {
        tracing::error!(boundary, call, ?side, "aborting at the failpoint set in KUBELEET_FAILPOINT");
        std::process::abort();
    }
}

#[cfg(debug_assertions)]
struct Failpoint {
    boundary: String,
    call: String,
    side: Side,
    remaining: std::sync::atomic::AtomicU64,
}

#[cfg(debug_assertions)]
impl Failpoint {
    /// Panics: a test could pass because the process was never aborted.
    fn parse(text: &str) -> Self {
        let (step, count) = text.split_once(':').unwrap_or((text, "1"));
        let read = || {
            let mut parts = step.splitn(3, '.');
            let (boundary, call) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            let side = match parts.next()? {
                "before" => Side::Before,
                "after" => Side::After,
                _ => return None,
            };
            let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
            Some(Self { boundary, call, side, remaining: count.into() })
        };
        read().unwrap_or_else(|| {
            panic!("KUBELEET_FAILPOINT={text}: write redis.claim.before or redis.claim.after:3")
        })
    }

    fn count_pass(&self, boundary: &str, call: &str, side: Side) -> bool {
        use std::sync::atomic::Ordering;

        side == self.side
            && call == self.call
            && boundary == self.boundary
            && self.remaining.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn is_due_at_the_named_step_and_count_only() {
        let failpoint = Failpoint::parse("redis.claim.after:2");
        let passes = [
            ("redis", "claim", Side::After, false),
            ("redis", "claim", Side::Before, false),
            ("redis", "ack", Side::After, false),
            ("engine", "claim", Side::After, false),
            ("redis", "claim", Side::After, true),
            ("redis", "claim", Side::After, false),
        ];
        for (boundary, call, side, due) in passes {
            assert_eq!(failpoint.count_pass(boundary, call, side), due, "{boundary}.{call} {side:?}");
        }
        assert!(Failpoint::parse("docker.Create.before").count_pass("docker", "Create", Side::Before));
    }

    #[test]
    fn a_malformed_failpoint_panics_instead_of_never_being_reached() {
        for bad in
            ["", "claim", "redis.claim", "redis.claim.middle", "redis.claim.after:0", "redis.claim.after:x"]
        {
            assert!(std::panic::catch_unwind(|| Failpoint::parse(bad)).is_err(), "{bad}");
        }
    }
}
