//! Checks whether Redis accepts writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::cmd;
use tokio::sync::Mutex;

use crate::keys::{self, channel};
use crate::scripts::lease;
use crate::server::info::ServerInfo;
use crate::{Store, StoreError};
use redis_link::{DedicatedConnection, Link};

/// A healthy Redis answers within milliseconds.
const LIMIT: Duration = Duration::from_millis(1500);
const KEEP: Duration = Duration::from_secs(10);
const SETTINGS_INTERVAL: Duration = Duration::from_secs(30);
const HAD_AOF: &str = "appendonly";

/// By a script, a message and INFO, like all operations. It has its own connection, because Redis blocks a
/// whole connection while it holds back a write.
pub struct WriteProbe {
    link: Link,
    /// No other process uses this lease.
    lease_key: String,
    connection: Mutex<Option<DedicatedConnection>>,
    settings: Mutex<Settings>,
    has_noted_aof: AtomicBool,
}

/// Only CONFIG GET returns them.
#[derive(Default)]
struct Settings {
    read_at: Option<Instant>,
    /// Each denied attempt would add an entry to Redis' ACL LOG.
    is_denied: bool,
    min_replicas: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct ProbeReport {
    pub writes: Result<(), StoreError>,
    pub server: Option<ServerInfo>,
    /// If it is readable for this user and not 0.
    pub min_replicas: Option<u64>,
    pub has_lost_aof: bool,
}

impl Store {
    pub fn write_probe(&self, id: &str) -> WriteProbe {
        WriteProbe {
            link: self.link.clone(),
            lease_key: keys::lease(&format!("probe:{id}")),
            connection: Mutex::default(),
            settings: Mutex::default(),
            has_noted_aof: AtomicBool::new(false),
        }
    }
}

impl WriteProbe {
    /// Ends within some seconds in any case.
    pub async fn run(&self) -> ProbeReport {
        let written = self.write().await;
        if matches!(written, Err(StoreError::Unreachable { .. })) {
            return ProbeReport { writes: written, server: None, min_replicas: None, has_lost_aof: false };
        }
        let info = tokio::time::timeout(LIMIT, self.link.query::<String>(&cmd("INFO"))).await;
        let (writes, server) = match (written, info) {
            (Err(StoreError::Timeout { .. }), Ok(Ok(info))) => {
                let limit_ms = LIMIT.as_millis() as u64;
                (Err(StoreError::WritesPaused { limit_ms }), Some(info))
            }
            (written, Ok(Ok(info))) => (written, Some(info)),
            (Ok(()), Ok(Err(error))) => (Err(error), None),
            (written, _) => (written, None),
        };
        let server = server.map(|info| ServerInfo::read(&info));
        let min_replicas = self.min_replicas(server.as_ref()).await;
        let has_lost_aof = self.note_aof(server.as_ref(), writes.is_ok()).await;
        ProbeReport { writes, server, min_replicas, has_lost_aof }
    }

    async fn write(&self) -> Result<(), StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.link.dedicated(LIMIT).await?,
        };
        let mut publish = cmd("PUBLISH");
        publish.arg(channel::PROBE).arg("");
        let take = lease::Head { lease_key: &self.lease_key, caller: "api", period_ms: KEEP };
        let _: (i64, redis::Value) = connection.query_then(&publish, &take.call()).await?;
        *slot = Some(connection);
        Ok(())
    }

    async fn min_replicas(&self, server: Option<&ServerInfo>) -> Option<u64> {
        server?.good_replicas?;
        let mut settings = self.settings.lock().await;
        let is_fresh = settings.read_at.is_some_and(|at| at.elapsed() < SETTINGS_INTERVAL);
        if settings.is_denied || is_fresh {
            return settings.min_replicas;
        }
        let mut get = cmd("CONFIG");
        get.arg("GET").arg("min-replicas-to-write");
        match tokio::time::timeout(LIMIT, self.link.query::<Vec<String>>(&get)).await {
            Ok(Ok(words)) => {
                settings.min_replicas =
                    words.get(1).and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                settings.read_at = Some(Instant::now());
            }
            Ok(Err(error)) if error.needs_operator() => settings.is_denied = true,
            Ok(Err(_)) | Err(_) => {}
        }
        settings.min_replicas
    }

    /// Returns true if Redis had an append-only file and has none now. An operator who wants that removes the
    /// record.
    async fn note_aof(&self, server: Option<&ServerInfo>, is_writable: bool) -> bool {
        let Some(has_aof) = server.and_then(|server| server.has_aof) else { return false };
        if !has_aof {
            self.has_noted_aof.store(false, Ordering::Relaxed);
            let noted = self.link.query::<Option<Vec<u8>>>(cmd("HGET").arg(keys::META).arg(HAD_AOF)).await;
            return noted.is_ok_and(|noted| noted.is_some());
        }
        if is_writable && !self.has_noted_aof.load(Ordering::Relaxed) {
            let noted = self.link.query::<()>(cmd("HSET").arg(keys::META).arg(HAD_AOF).arg("yes")).await;
            // At maxmemory, or while `meta` is broken, a later probe records it.
            self.has_noted_aof.store(noted.is_ok(), Ordering::Relaxed);
        }
        false
    }
}
