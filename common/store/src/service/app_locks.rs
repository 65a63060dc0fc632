//! Locks of apps: one client changes an app at a time. A lock is a lease that its holder renews. A failover
//! may lose it; the client notices that at the renewal and stops. No record depends on it.

use std::time::Duration;

use redis::cmd;

use crate::reply::read;
use crate::scripts::lease_release;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{AppName, LockId};

pub const APP_LOCK_PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppLockOutcome {
    Held,
    HeldBy {
        who: String,
        /// 0 if unreadable.
        since: RedisMillis,
    },
}

impl Store {
    /// `who` is shown to other users.
    pub async fn lock_app(
        &self,
        app: &AppName,
        id: &LockId,
        who: &str,
    ) -> Result<AppLockOutcome, StoreError> {
        let before = self.lock_text(app).await?;
        let own = match before.filter(|text| holder_of(text).0 == id.as_str()) {
            Some(own) => own,
            None => format!("{id} {} {who}", self.redis_now().await?),
        };
        if self.lease(&lock_name(app), &own, APP_LOCK_PERIOD).await? {
            return Ok(AppLockOutcome::Held);
        }
        let text = self.lock_text(app).await?.unwrap_or_default();
        let (_, since, who) = holder_of(&text);
        Ok(AppLockOutcome::HeldBy { who: who.to_owned(), since })
    }

    /// Does nothing if another client has it.
    pub async fn unlock_app(&self, app: &AppName, id: &LockId) -> Result<(), StoreError> {
        let own = self.lock_text(app).await?.filter(|text| holder_of(text).0 == id.as_str());
        let Some(own) = own else { return Ok(()) };
        self.release_lease(&lock_name(app), &own).await.map(drop)
    }

    /// Returns false if `holder` does not have it.
    pub async fn release_lease(&self, name: &str, holder: &str) -> Result<bool, StoreError> {
        let release = lease_release::Head { lease_key: keys::lease(name), caller: holder };
        Ok(read::<u8>("giving up a lease", self.link.script(&release.call()).await?)? == 1)
    }

    /// `None` for a wrong type, which the next taker moves away.
    async fn lock_text(&self, app: &AppName) -> Result<Option<String>, StoreError> {
        let mut get = cmd("GET");
        get.arg(keys::lease(&lock_name(app)));
        match self.link.query::<Option<Vec<u8>>>(&get).await {
            Ok(text) => Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned())),
            Err(error) if error.is_broken_key() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn lock_name(app: &AppName) -> String {
    format!("app:{app}")
}

fn holder_of(text: &str) -> (&str, RedisMillis, &str) {
    let mut words = text.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    (word(), word().parse().unwrap_or(0), word())
}
