//! The proxies of the hosts, and their addresses for each other.

use std::time::Duration;

use redis::cmd;

use crate::keys::{self, channel};
use crate::reply::{RawFields, parse};
use crate::{Store, StoreError};
use model::ids::NodeName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySign {
    pub node: NodeName,
    pub is_alive: bool,
    /// The id of its key for secrets.
    pub secret_key: Option<String>,
}

impl Store {
    pub async fn proxies(&self) -> Result<Vec<(NodeName, String)>, StoreError> {
        let fields: RawFields = self.link.query(cmd("HGETALL").arg(keys::PROXIES)).await?;
        let proxy = |(node, line): (Vec<u8>, Vec<u8>)| Some((parse(&node)?, String::from_utf8(line).ok()?));
        Ok(fields.into_iter().filter_map(proxy).collect())
    }

    /// Idempotent.
    pub async fn announce_proxy(&self, nodes: &[NodeName], line: &str) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        for node in nodes {
            pipe.cmd("HSET").arg(keys::PROXIES).arg(node.as_str()).arg(line).ignore();
        }
        pipe.cmd("PUBLISH").arg(channel::PROXIES).arg("").ignore();
        self.link.pipeline(&pipe).await
    }

    /// Shows that the proxy lives.
    pub async fn proxy_lives(
        &self,
        nodes: &[NodeName],
        secret_key: Option<&str>,
        lasts: Duration,
    ) -> Result<(), StoreError> {
        for node in nodes {
            // One holder for all processes, so that the host's next proxy continues the lease.
            self.lease(&sign_of_life(node), &"proxy", lasts).await?;
            if let Some(secret_key) = secret_key {
                self.lease(&key_of_proxy(node), &secret_key, lasts).await?;
            }
        }
        Ok(())
    }

    pub async fn proxy_signs(&self) -> Result<Vec<ProxySign>, StoreError> {
        let nodes: Vec<NodeName> = self.proxies().await?.into_iter().map(|(node, _)| node).collect();
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for node in &nodes {
            pipe.cmd("EXISTS").arg(keys::lease(&sign_of_life(node)));
            pipe.cmd("GET").arg(keys::lease(&key_of_proxy(node)));
        }
        let signs: Vec<(bool, Option<Vec<u8>>)> = self.link.pipeline(&pipe).await?;
        let sign = |(node, (is_alive, key)): (NodeName, (bool, Option<Vec<u8>>))| ProxySign {
            node,
            is_alive,
            secret_key: key.and_then(|key| String::from_utf8(key).ok()).filter(|_| is_alive),
        };
        Ok(nodes.into_iter().zip(signs).map(sign).collect())
    }

    pub async fn forget_proxies(&self, nodes: &[NodeName]) -> Result<(), StoreError> {
        if nodes.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
        let lines: Vec<Option<Vec<u8>>> =
            self.link.query(cmd("HMGET").arg(keys::PROXIES).arg(&names)).await?;
        // Usually all are forgotten already: then nothing is written.
        let known = names.iter().zip(&lines).filter(|(_, line)| line.is_some());
        let known: Vec<&str> = known.map(|(name, _)| *name).collect();
        if known.is_empty() {
            return Ok(());
        }
        self.link.query(cmd("HDEL").arg(keys::PROXIES).arg(&known)).await
    }
}

fn sign_of_life(node: &NodeName) -> String {
    format!("proxy:{node}")
}

fn key_of_proxy(node: &NodeName) -> String {
    format!("proxy_key:{node}")
}
