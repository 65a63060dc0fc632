//! Whole schedulers against a real Redis, with nodes that only beat.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a skipped test has to say so")]

mod broken;
mod cluster;
mod dying;
mod guests;
mod healing;
mod killing;
mod placing;
mod redis;

/// Ends the test early, and loudly, where there is no redis-server.
macro_rules! need_redis {
    ($test:literal) => {
        if !crate::tests::redis::is_available($test) {
            return;
        }
    };
}
use need_redis;
