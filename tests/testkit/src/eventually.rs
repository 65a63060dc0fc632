//! Waits for a condition with a deadline, instead of sleeping for a guessed time.

use std::fmt::Display;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

/// Long enough for a busy machine; a passing test takes a fraction of it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Result of an [`eventually`] probe: `bool`, `Option`, or `Result` with the current state as its error.
pub trait Probed {
    /// Value of a condition that holds.
    type Value;

    /// Returns the value, or the current state as text.
    /// # Errors
    /// The condition does not hold yet.
    fn into_result(self) -> Result<Self::Value, String>;
}

impl Probed for bool {
    type Value = ();

    fn into_result(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

impl<T> Probed for Option<T> {
    type Value = T;

    fn into_result(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, S: Display> Probed for Result<T, S> {
    type Value = T;

    fn into_result(self) -> Result<T, String> {
        self.map_err(|state| state.to_string())
    }
}

/// Repeats `probe` until the condition holds, at most for [`DEFAULT_TIMEOUT`].
///
/// # Panics
/// After the timeout, with `what` was waited for and the last state seen.
pub async fn eventually<P: Probed>(what: &str, probe: impl AsyncFnMut() -> P) -> P::Value {
    eventually_within(DEFAULT_TIMEOUT, what, probe).await
}

/// Repeats `probe` until the condition holds, at most for `timeout`.
///
/// # Panics
/// After the timeout, with `what` was waited for and the last state seen.
pub async fn eventually_within<P: Probed>(
    timeout: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> P,
) -> P::Value {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match probe().await.into_result() {
            Ok(value) => return value,
            Err(state) => check_deadline(start, timeout, what, &state),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// [`eventually`] for tests that are not async.
///
/// # Panics
/// After the timeout, with `what` was waited for and the last state seen.
pub fn blocking_eventually<P: Probed>(what: &str, mut probe: impl FnMut() -> P) -> P::Value {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match probe().into_result() {
            Ok(value) => return value,
            Err(state) => check_deadline(start, DEFAULT_TIMEOUT, what, &state),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

fn check_deadline(start: Instant, timeout: Duration, what: &str, state: &str) {
    assert!(start.elapsed() <= timeout, "{what}: not within {timeout:?}; last state:\n{state}");
}

/// Returns `Ok` if `holds`, else the current state as text.
///
/// # Errors
/// The condition does not hold yet.
pub fn check(holds: bool, state: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(state()) }
}

/// Blocks until a future has run on another thread. Unlike tokio's `block_on` it works inside a runtime, for
/// synchronous helpers of async tests.
pub fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
