//! Usage, measured on demand: a reader leaves a key that expires, and workers that see it report to all
//! readers.

use bytes::Bytes;
use redis::cmd;

use crate::keys::{self, channel};
use crate::{Store, StoreError};
use model::ids::NodeName;
use model::node::usage::UsageReport;

/// How long workers measure after a request.
const LOOK_SECONDS: u64 = 15;
const REPORT_SECONDS: u64 = 15;
const REPORTS_PER_READ: usize = 100;

impl Store {
    /// Asks one node, or all. Returns true if no request was active: then the first report takes a moment.
    pub async fn look_at_usage(&self, node: Option<&NodeName>) -> Result<bool, StoreError> {
        let key = node.map_or_else(|| keys::USAGE_WANTED.to_owned(), keys::usage_wanted);
        let mut pipe = redis::pipe();
        pipe.cmd("EXISTS").arg(&key);
        pipe.cmd("SET").arg(&key).arg(1).arg("EX").arg(LOOK_SECONDS).ignore();
        let (was_wanted,): (bool,) = self.link.pipeline(&pipe).await?;
        if !was_wanted {
            // If the message is lost, a worker finds the key at its next slow poll.
            let message = node.map_or("*", |node| node.as_str());
            let mut publish = cmd("PUBLISH");
            publish.arg(channel::USAGE).arg(message);
            self.link.query::<i64>(&publish).await?;
        }
        Ok(!was_wanted)
    }

    pub async fn is_usage_wanted(&self, node: &NodeName) -> Result<bool, StoreError> {
        let found: u64 =
            self.link.query(cmd("EXISTS").arg(keys::USAGE_WANTED).arg(keys::usage_wanted(node))).await?;
        Ok(found > 0)
    }

    pub async fn write_usage(&self, node: &NodeName, report: &UsageReport) -> Result<bool, StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("SET")
            .arg(keys::usage(node))
            .arg(crate::json::to_json(report))
            .arg("EX")
            .arg(REPORT_SECONDS)
            .ignore();
        pipe.cmd("EXISTS").arg(keys::USAGE_WANTED).arg(keys::usage_wanted(node));
        let (wanted,): (u64,) = self.link.pipeline(&pipe).await?;
        Ok(wanted > 0)
    }

    /// Returns `None` without a readable report.
    pub async fn usage_of(&self, nodes: &[NodeName]) -> Result<Vec<Option<UsageReport>>, StoreError> {
        let mut reports = Vec::with_capacity(nodes.len());
        for chunk in nodes.chunks(REPORTS_PER_READ) {
            let mut get = cmd("MGET");
            for node in chunk {
                get.arg(keys::usage(node));
            }
            let found: Vec<Option<Bytes>> = self.link.query(&get).await?;
            let report = |json: Option<Bytes>| serde_json::from_slice(&json?).ok();
            reports.extend(found.into_iter().map(report));
        }
        Ok(reports)
    }
}
