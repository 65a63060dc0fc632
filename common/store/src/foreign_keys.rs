//! Keys of kubeleet that another program has overwritten, and that can be rebuilt.

use redis::cmd;

use super::reply::word;
use super::scripts::repair;
use super::{Store, StoreError, keys};
use model::ids::{NodeName, SchedulerId, ServiceName};

const KEYS_PER_READ: usize = 1000;

/// It exists in `meta` while `services` is moved away and not yet rebuilt.
const UNLISTED_SERVICES: &str = "unlisted_services";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignKey {
    /// The next script that needs it moves it away.
    InPlace(&'static str),
    /// kubeleet uses a new one.
    SetAside(&'static str),
}

impl ForeignKey {
    pub fn name(&self) -> String {
        match self {
            Self::InPlace(key) => (*key).to_owned(),
            Self::SetAside(key) => keys::aside(key),
        }
    }
}

fn is_wrong(key: &str, actual_type: &str) -> bool {
    actual_type != "none" && keys::type_of(key) != Some(actual_type)
}

impl Store {
    pub async fn foreign_keys(&self) -> Result<Vec<ForeignKey>, StoreError> {
        let mut pipe = redis::pipe();
        for key in keys::CLUSTER_WIDE {
            pipe.cmd("TYPE").arg(key).cmd("EXISTS").arg(keys::aside(key));
        }
        let replies: Vec<(String, bool)> = self.link.pipeline(&pipe).await?;
        let mut foreign = Vec::new();
        for (key, (found, is_set_aside)) in keys::CLUSTER_WIDE.into_iter().zip(replies) {
            if is_wrong(key, &found) {
                foreign.push(ForeignKey::InPlace(key));
            }
            if is_set_aside {
                foreign.push(ForeignKey::SetAside(key));
            }
        }
        Ok(foreign)
    }

    /// The records can rebuild them.
    pub async fn set_aside_cluster_keys(&self) -> Result<Vec<String>, StoreError> {
        let mut keys = keys::CLUSTER_WIDE.map(str::to_owned).to_vec();
        keys.push(keys::aside(keys::SERVICES));
        let mut types = self.types_of(&keys).await?;
        let was_moved_before = types.pop().is_some_and(|found| found != "none");
        let mut moved = Vec::new();
        for (key, found) in keys.into_iter().zip(types) {
            if is_wrong(&key, &found) && self.set_aside(&key, &found).await? {
                moved.push(key);
            }
        }
        let is_moved = moved.iter().any(|key| key == keys::SERVICES);
        if is_moved || (was_moved_before && self.has_unlisted_services().await?) {
            self.list_all_services_again().await?;
        }
        Ok(moved)
    }

    /// A process may have died after it moved `services` away.
    async fn has_unlisted_services(&self) -> Result<bool, StoreError> {
        self.link.query(cmd("HEXISTS").arg(keys::META).arg(UNLISTED_SERVICES)).await
    }

    /// Nothing else names a cron or a service without pods.
    async fn list_all_services_again(&self) -> Result<(), StoreError> {
        let prefix = "service:";
        for key in self.keys_and_types(&format!("{prefix}*")).await?.into_keys() {
            if let Ok(name) = ServiceName::new(&key[prefix.len()..]) {
                self.list_service_again(&name).await?;
            }
        }
        let _: u64 = self.link.query(cmd("HDEL").arg(keys::META).arg(UNLISTED_SERVICES)).await?;
        Ok(())
    }

    /// Leaves records where they are.
    pub async fn set_aside_queues(
        &self,
        nodes: &[NodeName],
        schedulers: &[SchedulerId],
    ) -> Result<Vec<String>, StoreError> {
        let of_nodes = nodes.iter().flat_map(keys::queues_of_node);
        self.set_aside_wrong_types(of_nodes.chain(schedulers.iter().map(keys::in_flight)).collect()).await
    }

    async fn set_aside_wrong_types(&self, keys: Vec<String>) -> Result<Vec<String>, StoreError> {
        let mut moved = Vec::new();
        for chunk in keys.chunks(KEYS_PER_READ) {
            for (key, found) in chunk.iter().zip(self.types_of(chunk).await?) {
                if is_wrong(key, &found) && self.set_aside(key, &found).await? {
                    moved.push(key.clone());
                }
            }
        }
        Ok(moved)
    }

    async fn types_of(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.cmd("TYPE").arg(key);
        }
        self.link.pipeline(&pipe).await
    }

    async fn set_aside(&self, key: &str, actual_type: &str) -> Result<bool, StoreError> {
        let call = repair::Head {
            key,
            aside: keys::aside(key),
            record_key: "pod:",
            action: "set_aside",
            element: actual_type,
            seen_phase: "",
            seen_node: "",
        };
        Ok(word("moving a key out of the way", self.link.script(&call.call()).await?)? == "OK")
    }

    pub async fn list_service_again(&self, name: &ServiceName) -> Result<bool, StoreError> {
        let call = repair::Head {
            key: keys::SERVICES,
            aside: keys::aside(keys::SERVICES),
            record_key: keys::service(name),
            action: "add",
            element: name.as_str(),
            seen_phase: "",
            seen_node: "",
        };
        Ok(word("listing a service again", self.link.script(&call.call()).await?)? == "OK")
    }

    /// If the set has a wrong type, scans the names of the records, which is slower.
    pub(super) async fn members_or_records(
        &self,
        set: &str,
        prefix: &str,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        match self.link.query(cmd("SMEMBERS").arg(set)).await {
            Err(StoreError::WrongType { .. }) => {
                let found = self.keys_and_types(&format!("{prefix}*")).await?;
                Ok(found.into_keys().map(|key| key.as_bytes()[prefix.len()..].to_vec()).collect())
            }
            members => members,
        }
    }
}
