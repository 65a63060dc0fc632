//! External workers: other programs that write `hb:<worker>` and serve `pq:`, `rq:` and `cs:`. They cannot be
//! fenced or told to stop a pod.

use redis::cmd;

use crate::reply::{read, unexpected, word};
use crate::scripts::{external_ack, external_beat};
use crate::{Store, StoreError, keys};
use model::ids::{AssignmentId, Incarnation, NodeName};
use model::pod::payload::Payload;

const ACK_CHUNK: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalBeat {
    Ours,
    Silent,
    Beat,
    /// Its value changed for the first time, or after it was dead: it is a node now.
    Joined,
    /// It was declared dead and its pods are still being moved.
    Draining,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalSign {
    Heartbeat(NodeName),
    Queue(NodeName),
}

impl Store {
    /// Scans for `hb:*` and `pq:*`. The next cursor is 0 at the end.
    pub async fn scan_for_external_workers(
        &self,
        cursor: u64,
        count: usize,
    ) -> Result<(u64, Vec<ExternalSign>), StoreError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg("[hp][bq]:*").arg("COUNT").arg(count);
        let (next, found): (u64, Vec<Vec<u8>>) = self.link.query(&scan).await?;
        let sign = |key: Vec<u8>| {
            let key = String::from_utf8(key).ok()?;
            let (prefix, name) = key.split_once(':')?;
            let name = NodeName::new(name).ok()?;
            match prefix {
                "hb" => Some(ExternalSign::Heartbeat(name)),
                "pq" => Some(ExternalSign::Queue(name)),
                _ => None,
            }
        };
        Ok((next, found.into_iter().filter_map(sign).collect()))
    }

    /// Returns an empty value if it is missing, `None` if the worker has a record.
    pub async fn heartbeat_values(&self, workers: &[NodeName]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        if workers.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        // The value comes last: a worker of kubeleet whose record was lost stops its heartbeat.
        for name in workers {
            pipe.cmd("EXISTS").arg(keys::node(name));
            pipe.cmd("GET").arg(keys::hb(name));
        }
        let mut replies = self.link.pipeline_each(pipe).await?.into_iter();
        let mut values = Vec::with_capacity(workers.len());
        while let (Some(exists), Some(value)) = (replies.next(), replies.next()) {
            let has_record = read::<bool>("looking for a node", exists?)?;
            let value = value.ok().and_then(|value| read::<Vec<u8>>("reading a heartbeat", value).ok());
            values.push((!has_record).then(|| value.unwrap_or_default()));
        }
        Ok(values)
    }

    /// Registers a worker without record whose value differs from `seen` (see [`Store::heartbeat_values`]),
    /// or a dead one whose value has changed.
    pub async fn external_beat(
        &self,
        name: &NodeName,
        max_pods: u64,
        seen: &[u8],
    ) -> Result<ExternalBeat, StoreError> {
        let what = "reading the heartbeat of an external worker";
        let beat = external_beat::Head {
            node_key: keys::node(name),
            nodes: keys::NODES,
            beats: keys::BEATS,
            heartbeat_key: keys::hb(name),
            pq: keys::pq(name),
            rq: keys::rq(name),
            cs: keys::cs(name),
            node: name,
            new_incarnation: Incarnation::random(),
            max_pods,
            seen,
        };
        match word(what, self.link.script(&beat.call()).await?)?.as_str() {
            "OURS" => Ok(ExternalBeat::Ours),
            "SILENT" => Ok(ExternalBeat::Silent),
            "BEAT" => Ok(ExternalBeat::Beat),
            "JOINED" => Ok(ExternalBeat::Joined),
            "DRAINING" => Ok(ExternalBeat::Draining),
            other => Err(unexpected(what, other)),
        }
    }

    /// Returns the number of new pods.
    ///
    /// # Errors
    /// If the keys of some pods are broken, records the others before it fails.
    pub async fn external_ack(&self, name: &NodeName, running: &[Payload]) -> Result<usize, StoreError> {
        let mut found = 0;
        for chunk in running.chunks(ACK_CHUNK) {
            found += match self.external_ack_chunk(name, chunk).await {
                Err(error) if !error.is_transient() && chunk.len() > 1 => {
                    self.external_ack_each(name, chunk).await?
                }
                count => count?,
            };
        }
        Ok(found)
    }

    async fn external_ack_each(&self, name: &NodeName, running: &[Payload]) -> Result<usize, StoreError> {
        let (mut found, mut first_error) = (0, None);
        for payload in running {
            match self.external_ack_chunk(name, std::slice::from_ref(payload)).await {
                Ok(count) => found += count,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        first_error.map_or(Ok(found), Err)
    }

    async fn external_ack_chunk(&self, name: &NodeName, chunk: &[Payload]) -> Result<usize, StoreError> {
        let mut call = external_ack::Head {
            node_key: keys::node(name),
            cs: keys::cs(name),
            pushed: keys::PUSHED,
            node: name,
        }
        .call();
        for payload in chunk {
            call.add(external_ack::Pod {
                pod_key: keys::pod(&payload.id),
                ep_key: keys::endpoints_of(payload.service().as_ref()),
                payload: &payload.raw,
                uuid: &payload.id,
                new_assignment: AssignmentId::random(),
                name: &payload.name,
                image: &payload.image,
                replica: payload.replica,
            });
        }
        read("reading the pods of an external worker", self.link.script(&call).await?)
    }
}
