//! The content of a Redis, put aside and put back: for trying many things from one and the same state.

use ::redis::{Value, cmd, pipe};

use crate::Redis;

/// Everything but scripts and times to live.
pub struct Checkpoint(Vec<(Vec<u8>, Vec<u8>)>);

impl Checkpoint {
    /// Puts the content aside.
    pub async fn take(redis: &Redis) -> Self {
        let keys: Vec<Vec<u8>> = redis.cli(&["KEYS", "*"]).await;
        let mut content = Vec::with_capacity(keys.len());
        for key in keys {
            let blob = redis.cli(&[&b"DUMP"[..], &key]).await;
            content.push((key, blob));
        }
        Self(content)
    }

    /// Puts it back; what came in between is gone.
    pub async fn restore(&self, redis: &Redis) {
        let mut all = pipe();
        all.atomic().cmd("FLUSHALL");
        for (key, blob) in &self.0 {
            all.add_command(cmd("RESTORE").arg(key).arg(0).arg(blob).clone());
        }
        let _replies: Value = all.query_async(&mut redis.connection().await.unwrap()).await.unwrap();
    }
}
