//! Waits for a condition with a deadline.

use std::fmt::Display;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// `Err` is the current state.
pub trait Probed {
    type Value;

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

pub async fn eventually<P: Probed>(what: &str, probe: impl AsyncFnMut() -> P) -> P::Value {
    eventually_within(DEFAULT_TIMEOUT, what, probe).await
}

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

pub fn check(holds: bool, state: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(state()) }
}

/// On another thread: unlike tokio's `block_on` it works inside a runtime.
pub fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
