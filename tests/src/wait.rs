//! Waiting for a condition with a deadline: never sleep and hope.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; a test that works takes a fraction of it.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Asks again and again until `probe` gives `Ok`; its `Err` says in words what is still missing.
///
/// # Panics
/// When `within` has passed: with `what` was waited for and the last state seen.
pub async fn eventually<T, S: Display, F: Future<Output = Result<T, S>>>(
    within: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(state) if begun.elapsed() > within => {
                panic!("{what}: not within {within:?}; the last state seen was:\n{state}")
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// `Ok` when it holds, else the state in words: for [`eventually`].
pub fn that(holds: bool, state: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(state()) }
}
