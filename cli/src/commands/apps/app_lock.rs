//! Keeps other clients from changing an app at the same time: two that apply different files at once would
//! leave a mixture.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_types::AppLockInput;
use client::{Client, ClientError};
use model::ids::{AppName, LockId};
use output::stderr;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::commands::error::CommandError;

/// Between two renewals: two may fail before the lock ends.
const RENEWAL: Duration = Duration::from_secs(3);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(300);
/// The longest wait for another client: the lock of one that has died ends before.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// The lock of an app. A process that dies loses it after some seconds.
pub(crate) struct AppLock {
    client: Client,
    app: AppName,
    input: AppLockInput,
    /// Why it was lost, if it was.
    lost: Arc<Mutex<Option<String>>>,
    /// `None` with an API of the version before, which has no locks.
    renewal: Option<AbortHandle>,
}

impl AppLock {
    /// Takes the lock; waits for another client, but for `timeout` at most.
    ///
    /// # Errors
    /// `Conflict` if another client keeps it.
    pub(crate) async fn take(
        client: &Client,
        app: &AppName,
        timeout: Duration,
    ) -> Result<Self, CommandError> {
        let input = AppLockInput { id: LockId::random(), holder: holder() };
        let (client, app) = (client.clone(), app.clone());
        let mut lock = Self { client, app, input, lost: Arc::default(), renewal: None };
        let deadline = Instant::now() + timeout.min(LONGEST_WAIT);
        let mut has_waited = false;
        loop {
            match lock.client.lock_app(&lock.app, &lock.input).await {
                Ok(()) => break,
                Err(error) if error.status() == Some(404) => return Ok(lock),
                Err(error) if !is_held(&error) => return Err(error.into()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(CommandError::Conflict(format!(
                        "{error}; nothing was changed: try again later"
                    )));
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_waited, true) {
                        stderr::note(&format!("{error}; waiting"));
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        lock.renewal = Some(tokio::spawn(lock.renewing()).abort_handle());
        Ok(lock)
    }

    /// Checks that no other client has got the lock meanwhile, as after a failover of Redis.
    ///
    /// # Errors
    /// `Conflict` with who has it.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(CommandError::Conflict(format!(
                "{why}; stopped in between: run this again, one at a time"
            ))),
        }
    }

    /// Releases it. If that fails, it ends by itself.
    pub(crate) async fn release(self) {
        if self.renewal.is_some() {
            _ = self.client.unlock_app(&self.app, &self.input.id).await;
        }
    }

    /// Renews the lock until another client has it. An error says nothing about that.
    fn renewing(&self) -> impl Future<Output = ()> + Send + use<> {
        let (client, app, input) = (self.client.clone(), self.app.clone(), self.input.clone());
        let lost = self.lost.clone();
        async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                if let Err(error) = client.lock_app(&app, &input).await
                    && is_held(&error)
                {
                    *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                    return;
                }
            }
        }
    }
}

impl Drop for AppLock {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
    }
}

fn is_held(error: &ClientError) -> bool {
    error.status() == Some(409)
}

/// Returns how others know this user, as in `ann@laptop`.
fn holder() -> String {
    let user =
        std::env::var("USER").unwrap_or_else(|_| format!("user {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}
