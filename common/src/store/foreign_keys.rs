//! Keys that another program wrote in the place of one of kubeleet's, and that can be written again.

use redis::{Value, cmd};

use super::reply::{read, word};
use super::scripts::repair;
use super::{Store, StoreError, keys};
use crate::ids::{NodeName, SchedulerId, ServiceName};

/// The number of keys whose types are read in one round trip.
const KEYS_PER_READ: usize = 1000;

/// A key of the whole cluster that another program wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignKey {
    /// It has a type that kubeleet never uses for it. The next script that needs it moves it out of the way.
    InPlace(&'static str),
    /// It was moved out of the way, and kubeleet goes on with a new one.
    SetAside(&'static str),
}

impl ForeignKey {
    /// Returns the name under which its value is now.
    pub fn name(&self) -> String {
        match self {
            Self::InPlace(key) => (*key).to_owned(),
            Self::SetAside(key) => keys::aside(key),
        }
    }
}

impl Store {
    /// Returns the keys of the whole cluster that another program wrote.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn foreign_keys(&self) -> Result<Vec<ForeignKey>, StoreError> {
        let mut pipe = redis::pipe();
        for key in keys::CLUSTER_WIDE {
            pipe.cmd("TYPE").arg(key).cmd("EXISTS").arg(keys::aside(key));
        }
        let replies: Vec<Value> = self.link.pipeline(&pipe).await?;
        let mut foreign = Vec::new();
        for (key, reply) in keys::CLUSTER_WIDE.into_iter().zip(replies.chunks_exact(2)) {
            let found = word("TYPE", reply[0].clone())?;
            let is_set_aside: bool = read("EXISTS", reply[1].clone())?;
            if found != "none" && keys::type_of(key) != Some(found.as_str()) {
                foreign.push(ForeignKey::InPlace(key));
            }
            if is_set_aside {
                foreign.push(ForeignKey::SetAside(key));
            }
        }
        Ok(foreign)
    }

    /// Moves the keys of the whole cluster out of the way that have a type that kubeleet never uses for them.
    /// They are queues and lists that are written again from the records. Returns those that were moved.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn set_aside_cluster_keys(&self) -> Result<Vec<String>, StoreError> {
        let moved = self.set_aside_wrong_types(keys::CLUSTER_WIDE.map(str::to_owned).to_vec()).await?;
        if moved.iter().any(|key| key == keys::SERVICES) {
            self.list_services_again().await?;
        }
        Ok(moved)
    }

    /// Lists all services that have a record. Nothing else names a cron, or a service without pods.
    async fn list_services_again(&self) -> Result<(), StoreError> {
        let prefix = "service:";
        for key in self.keys_and_types(&format!("{prefix}*")).await?.into_keys() {
            if let Ok(name) = ServiceName::new(&key[prefix.len()..]) {
                self.list_service_again(&name).await?;
            }
        }
        Ok(())
    }

    /// As [`Store::set_aside_cluster_keys`], for the keys of nodes and schedulers, but not for records.
    ///
    /// # Errors
    /// See [`StoreError`].
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
            let mut pipe = redis::pipe();
            for key in chunk {
                pipe.cmd("TYPE").arg(key);
            }
            let types: Vec<String> = self.link.pipeline(&pipe).await?;
            for (key, found) in chunk.iter().zip(types) {
                let is_wrong = found != "none" && keys::type_of(key) != Some(found.as_str());
                if is_wrong && self.set_aside(key, &found).await? {
                    moved.push(key.clone());
                }
            }
        }
        Ok(moved)
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

    /// Adds a service that has a record to the names of all services, if it is missing there. Returns whether
    /// it was.
    ///
    /// # Errors
    /// See [`StoreError`].
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

    /// Returns the members of a set that lists all records of a kind. While another program's value is in its
    /// place, reads the names of the records instead: slower, and nothing is hidden.
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
