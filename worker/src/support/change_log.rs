//! Log on change: one line when something starts to fail and one when it works again, not one per retry.

use std::fmt::Display;
use std::time::Duration;

use parking_lot::Mutex;
use store::StoreError;
use tokio::time::Instant;

/// A Redis that refuses only some commands works again once none was refused for so long.
const NO_REFUSAL_FOR: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct ChangeLog {
    subject: String,
    is_failing: Mutex<bool>,
}

impl ChangeLog {
    pub(crate) fn new(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), is_failing: Mutex::new(false) }
    }

    pub(crate) fn failed(&self, why: &dyn Display) {
        if !self.replace(true) {
            tracing::warn!("{} failed: {why}; retrying", self.subject);
        }
    }

    pub(crate) fn succeeded(&self) {
        if self.replace(false) {
            tracing::info!("{} works again", self.subject);
        }
    }

    fn replace(&self, is_failing: bool) -> bool {
        let mut current = self.is_failing.lock();
        let before = *current;
        *current = is_failing;
        before
    }
}

#[derive(Debug, Default)]
pub(crate) struct RedisLog {
    failure: Mutex<Option<RedisFailure>>,
}

#[derive(Debug)]
struct RedisFailure {
    cause: &'static str,
    is_refusal: bool,
    last: Instant,
}

impl RedisLog {
    pub(crate) fn failed(&self, error: &StoreError) {
        if self.note_failure(error) {
            tracing::warn!("the connection to Redis failed: {error}; retrying");
        }
    }

    pub(crate) fn succeeded(&self) {
        if self.note_success() {
            tracing::info!("the connection to Redis works again");
        }
    }

    fn note_failure(&self, error: &StoreError) -> bool {
        let is_refusal = !matches!(error, StoreError::Unreachable { .. } | StoreError::Timeout { .. });
        let cause = error.cause().unwrap_or("command");
        let before = self.failure.lock().replace(RedisFailure { cause, is_refusal, last: Instant::now() });
        before.is_none_or(|before| before.cause != cause)
    }

    fn note_success(&self) -> bool {
        let has_ended =
            |failure: &mut RedisFailure| !failure.is_refusal || failure.last.elapsed() >= NO_REFUSAL_FOR;
        self.failure.lock().take_if(has_ended).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_redis_that_refuses_some_commands_and_allows_others_is_logged_once() {
        let log = RedisLog::default();
        let refused = StoreError::Refused("NOPERM this user has no permissions".to_owned());
        let cut_off =
            StoreError::Unreachable { what: "EVALSHA".to_owned(), why: "connection refused".to_owned() };
        assert!(!log.note_success() && log.note_failure(&refused));
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(!log.note_success() && !log.note_failure(&refused));
        }
        assert!(log.note_failure(&cut_off) && !log.note_failure(&cut_off), "another cause");
        assert!(log.note_success() && !log.note_success(), "a connection that works is seen at once");
        assert!(log.note_failure(&refused));
        tokio::time::sleep(NO_REFUSAL_FOR).await;
        assert!(log.note_success() && !log.note_success());
    }
}
