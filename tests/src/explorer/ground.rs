//! What the runs of one thread share: a private Redis, a store on it, and a second connection to look and to meddle.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, FromRedisValue, Script, Value};
use common::store::Store;

use super::view::READ;
use crate::proxy::Proxy;
use crate::{Ablation, Redis};

/// See the module.
pub struct Ground {
    _redis: Redis,
    _proxy: Option<Proxy>,
    pub(super) store: Store,
    raw: MultiplexedConnection,
    read: Script,
}

/// All of Redis but the events, to come back to.
pub(super) struct Copy(Vec<(Vec<u8>, Vec<u8>)>);

impl Ground {
    /// A Redis of its own; with `ablation`, the store's scripts run with that change.
    pub async fn new(ablation: Option<Ablation>) -> Self {
        let redis = Redis::start().await;
        let raw = redis.connection().await.unwrap();
        let proxy = match ablation {
            Some(ablation) => Some(Proxy::start(redis.port(), ablation.load(&redis).await).await),
            None => None,
        };
        let store = proxy.as_ref().map_or_else(|| redis.store(), |proxy| crate::redis::store(&proxy.url()));
        Self { _redis: redis, _proxy: proxy, store, raw, read: Script::new(READ) }
    }

    /// Forgets everything but the scripts.
    pub(super) async fn clear(&self) {
        let () = self.cli(&["FLUSHALL"]).await;
    }

    pub(super) async fn cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> T {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        command.query_async(&mut self.raw.clone()).await.unwrap()
    }

    /// See [`View`](super::view::View).
    pub(super) async fn look(&self) -> Value {
        self.read.invoke_async(&mut self.raw.clone()).await.unwrap()
    }

    pub(super) async fn copy(&self) -> Copy {
        let keys: Vec<Vec<u8>> = self.cli(&["KEYS", "*"]).await;
        let mut dump = ::redis::pipe();
        let keys: Vec<_> = keys.into_iter().filter(|key| key != b"events").collect();
        for key in &keys {
            dump.cmd("DUMP").arg(key);
        }
        if keys.is_empty() {
            return Copy(Vec::new());
        }
        let dumps: Vec<Vec<u8>> = dump.query_async(&mut self.raw.clone()).await.unwrap();
        Copy(keys.into_iter().zip(dumps).collect())
    }

    /// A failover that lost what was written since the copy: that state, behind another master.
    pub(super) async fn fail_over_to(&self, copy: &Copy) {
        let mut restore = ::redis::pipe();
        restore.atomic().cmd("FLUSHDB").ignore();
        for (key, dump) in &copy.0 {
            restore.cmd("RESTORE").arg(key).arg(0).arg(dump).ignore();
        }
        restore.cmd("HSET").arg("meta").arg("run_id").arg("0123abc").ignore();
        let () = restore.query_async(&mut self.raw.clone()).await.unwrap();
    }

    /// Lets Redis' clock go on, for it has only milliseconds.
    pub(super) async fn let_time_pass(&self) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
