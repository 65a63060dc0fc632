//! A lock: two clients that apply different files at once would leave a mixture.

use std::sync::Arc;
use std::time::Duration;

use api_types::AppLockInput;
use client::{Client, ClientError, Method};
use model::ids::{AppName, LockId};
use output::stderr;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::commands::error::{CommandError, CommandResult};

/// Two renewals may fail before the lock expires.
const RENEWAL: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(300);
/// The lock of a dead client expires sooner.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Expires some seconds after its process dies.
pub(crate) struct AppLock {
    client: Client,
    app: AppName,
    input: AppLockInput,
    lost: Arc<Mutex<Option<String>>>,
    renewal: AbortHandle,
}

impl AppLock {
    /// `Conflict` if another client keeps it.
    pub(crate) async fn take(client: &Client, app: &AppName, timeout: Duration) -> CommandResult<Self> {
        let input = AppLockInput { id: LockId::random(), holder: holder() };
        let deadline = Instant::now() + timeout.min(LONGEST_WAIT);
        let mut has_waited = false;
        loop {
            match client.lock_app(app, &input).await {
                Ok(()) => break,
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
        let lost = Arc::default();
        let renewing = renew(client.clone(), app.clone(), input.clone(), Arc::clone(&lost));
        let renewal = tokio::spawn(renewing).abort_handle();
        Ok(Self { client: client.clone(), app: app.clone(), input, lost, renewal })
    }

    /// Another client may have the lock after a failover of Redis.
    pub(crate) fn check(&self) -> CommandResult<()> {
        match &*self.lost.lock() {
            None => Ok(()),
            Some(why) => Err(CommandError::Conflict(format!(
                "{why}; stopped in between: run this again, one at a time"
            ))),
        }
    }

    /// If that fails, the lock expires.
    pub(crate) async fn release(self) {
        let path = ["app", self.app.as_str(), "lock"];
        let call = self.client.call(Method::DELETE, &path, format!("unlocking app {}", self.app));
        _ = call.query("id", Some(&self.input.id)).done().await;
    }
}

/// Other errors say nothing about the holder.
async fn renew(client: Client, app: AppName, input: AppLockInput, lost: Arc<Mutex<Option<String>>>) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        if let Err(error) = client.lock_app(&app, &input).await
            && is_held(&error)
        {
            *lost.lock() = Some(error.to_string());
            return;
        }
    }
}

impl Drop for AppLock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

fn is_held(error: &ClientError) -> bool {
    error.status() == Some(409)
}

fn holder() -> String {
    let user =
        std::env::var("USER").unwrap_or_else(|_| format!("user {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}
