//! Failpoints: ending this process on the spot, at a step that was named to it, so that a test can kill it exactly there.
//!
//! `KUBELEET_FAILPOINT=redis.claim.after:3` ends it when it has the reply to its third `claim`. Steps are
//! `<seam>.<call>.<before|after>`; the seams are `redis` (the store's link: every script and command by its name),
//! `engine` (what the worker asks of its runtime) and `docker` (each call to the engine). Only builds with debug
//! assertions have them: a release build does nothing here and does not read the variable.

/// Which side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It has not been sent.
    Before,
    /// Its answer is there, and nobody has looked at it.
    After,
}

/// Comes past a step.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn pass(_seam: &str, _call: &str, _side: Side) {}

/// Comes past a step: the process ends here if this was the one it was told.
#[cfg(debug_assertions)]
pub fn pass(seam: &str, call: &str, side: Side) {
    use std::sync::LazyLock;

    static ARMED: LazyLock<Option<Failpoint>> =
        LazyLock::new(|| std::env::var("KUBELEET_FAILPOINT").ok().map(|text| Failpoint::parse(&text)));
    if let Some(failpoint) = &*ARMED
        && failpoint.is_due(seam, call, side)
    {
        tracing::error!(seam, call, ?side, "ending here: KUBELEET_FAILPOINT says so");
        std::process::abort();
    }
}

#[cfg(debug_assertions)]
struct Failpoint {
    seam: String,
    call: String,
    side: Side,
    left: std::sync::atomic::AtomicU64,
}

#[cfg(debug_assertions)]
impl Failpoint {
    /// `seam.call.side`, and after a colon at which time; the first when left out.
    ///
    /// # Panics
    /// When it is not written so: a test that means to kill must not pass because nothing was killed.
    fn parse(text: &str) -> Self {
        let (step, times) = text.split_once(':').unwrap_or((text, "1"));
        let read = || {
            let mut parts = step.splitn(3, '.');
            let (seam, call) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            let side = match parts.next()? {
                "before" => Side::Before,
                "after" => Side::After,
                _ => return None,
            };
            let times: u64 = times.parse().ok().filter(|times| *times > 0)?;
            Some(Self { seam, call, side, left: times.into() })
        };
        read().unwrap_or_else(|| {
            panic!("KUBELEET_FAILPOINT={text}: write redis.claim.before or redis.claim.after:3")
        })
    }

    /// Counts the passes of its step; true at the one that was asked for.
    fn is_due(&self, seam: &str, call: &str, side: Side) -> bool {
        use std::sync::atomic::Ordering;

        side == self.side
            && call == self.call
            && seam == self.seam
            && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn the_named_step_at_the_named_time() {
        let failpoint = Failpoint::parse("redis.claim.after:2");
        let passes = [
            ("redis", "claim", Side::After, false),
            ("redis", "claim", Side::Before, false),
            ("redis", "ack", Side::After, false),
            ("engine", "claim", Side::After, false),
            ("redis", "claim", Side::After, true),
            ("redis", "claim", Side::After, false),
        ];
        for (seam, call, side, due) in passes {
            assert_eq!(failpoint.is_due(seam, call, side), due, "{seam}.{call} {side:?}");
        }
        assert!(Failpoint::parse("docker.Create.before").is_due("docker", "Create", Side::Before));
    }

    #[test]
    fn a_step_that_can_not_be_is_no_step_that_is_never_reached() {
        for bad in
            ["", "claim", "redis.claim", "redis.claim.middle", "redis.claim.after:0", "redis.claim.after:x"]
        {
            assert!(std::panic::catch_unwind(|| Failpoint::parse(bad)).is_err(), "{bad}");
        }
    }
}
