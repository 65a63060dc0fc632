//! The load of Redis and the cluster, which decides whether more may be added.

use redis::cmd;

use crate::reply::corrupt;
use crate::server::info::field;
use crate::{Store, StoreError, keys};
use model::spec::MAX_REPLICAS;

const SERVICES_PER_READ: usize = 500;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RedisMemory {
    pub used: u64,
    /// In bytes.
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterSize {
    pub services: u64,
    /// Desired pods of services, and pushed pods.
    pub pods: u64,
    pub missing_pods: u64,
}

impl Store {
    pub async fn memory(&self) -> Result<RedisMemory, StoreError> {
        let info: String = self.link.query(cmd("INFO").arg("memory")).await?;
        read_memory(&info)
    }

    /// A service with broken keys counts as one without pods.
    pub async fn cluster_size(&self) -> Result<ClusterSize, StoreError> {
        let names = self.service_names().await?;
        let pushed: u64 = match self.link.query(cmd("SCARD").arg(keys::PUSHED)).await {
            Err(StoreError::WrongType { .. }) => 0,
            count => count?,
        };
        let mut size = ClusterSize { services: names.len() as u64, pods: pushed, missing_pods: 0 };
        for chunk in names.chunks(SERVICES_PER_READ) {
            for (created, desired) in self.creation_progress(chunk).await?.into_iter().flatten() {
                // An impossible number is a broken record.
                let desired = if desired > u64::from(MAX_REPLICAS) { 0 } else { desired };
                size.pods = size.pods.saturating_add(desired);
                size.missing_pods = size.missing_pods.saturating_add(desired.saturating_sub(created));
            }
        }
        Ok(size)
    }
}

fn read_memory(info: &str) -> Result<RedisMemory, StoreError> {
    let number = |name: &str| field(info, name)?.parse::<u64>().ok();
    let used = number("used_memory").ok_or_else(|| corrupt("INFO memory", "there is no used_memory"))?;
    // Buffers of replicas and of the append-only file do not count towards the limit.
    let not_counted = number("mem_not_counted_for_evict").unwrap_or(0);
    let limit = number("maxmemory").filter(|limit| *limit > 0);
    Ok(RedisMemory { used: used.saturating_sub(not_counted), limit })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn memory_is_read_from_what_redis_says() {
        let info = "# Memory\r\nused_memory:1000\r\nused_memory_rss:2000\r\nmaxmemory:5000\r\n\
                    maxmemory_human:5K\r\nmem_not_counted_for_evict:100\r\n";
        assert_eq!(read_memory(info), Ok(RedisMemory { used: 900, limit: Some(5000) }));
        let unlimited = info.replace("maxmemory:5000", "maxmemory:0");
        assert_eq!(read_memory(&unlimited).unwrap().limit, None);
        assert!(read_memory("").is_err());
    }
}
