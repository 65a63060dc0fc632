//! Saves and restores the content of a Redis.

use ::redis::{Value, cmd, pipe};

use crate::Redis;

/// Without times to live. Scripts stay loaded.
pub struct Checkpoint(Vec<(Vec<u8>, Vec<u8>)>);

impl Checkpoint {
    pub async fn take(redis: &Redis) -> Self {
        let keys: Vec<Vec<u8>> = redis.cli(&["KEYS", "*"]).await;
        let mut content = Vec::with_capacity(keys.len());
        for key in keys {
            let dump = redis.cli(&[&b"DUMP"[..], &key]).await;
            content.push((key, dump));
        }
        Self(content)
    }

    pub async fn restore(&self, redis: &Redis) {
        let mut transaction = pipe();
        transaction.atomic().cmd("FLUSHALL");
        for (key, dump) in &self.0 {
            transaction.add_command(cmd("RESTORE").arg(key).arg(0).arg(dump).clone());
        }
        let _replies: Value = transaction.query_async(&mut redis.connection().await.unwrap()).await.unwrap();
    }
}
