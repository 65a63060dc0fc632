//! Routes and the endpoints of their services, as proxies follow them.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Value, cmd};

use crate::keys;
use crate::reply::{RawFields, names, parse, read, unexpected, verdict, word};
use crate::scripts::{follow, follow_pods};
use crate::{Store, StoreError};
use model::ids::{AppName, PodId, ServiceName};
use model::network::endpoint::Endpoint;
use model::network::ingress::{IngressRule, parse_alias, parse_callers, read_rules};

/// A few milliseconds of Redis.
const PAGE: usize = 500;
const PIECE: usize = 1000;
/// As in the script `follow`.
const KEPT_SECONDS: i64 = 3600;

pub type Routes = Vec<(ServiceName, IngressRule)>;

/// Maps services with restricted callers to those that may call them, besides themselves.
pub type Callers = BTreeMap<ServiceName, BTreeSet<ServiceName>>;

pub type AliasesByApp = BTreeMap<AppName, BTreeMap<String, ServiceName>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routing {
    pub routes: Routes,
    pub callers: Callers,
    pub aliases: AliasesByApp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointVersion {
    pub version: u64,
    /// When the master that built the set took over: sets of different masters are unrelated.
    pub master: String,
}

pub enum FollowedEndpoints {
    Same,
    Changed(EndpointReading),
    /// Retry in a moment.
    BeingMade,
}

/// Reads in pieces that do not block Redis for long. Builds a missing set first.
pub struct EndpointReading {
    store: Store,
    service: ServiceName,
    stage: ReadingStage,
    cursor: u64,
    /// Version of the first page. Later pages may include later changes.
    version: Option<EndpointVersion>,
    endpoints: BTreeMap<PodId, Endpoint>,
}

enum ReadingStage {
    Make(String),
    Read,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ReadingStep {
    Made,
    Read,
    /// May include later changes: applying these again, in order, yields the later version.
    Done(EndpointVersion, Vec<Endpoint>),
    /// Follow again.
    Again,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointChange {
    pub version: EndpointVersion,
    pub changes: Vec<(PodId, Option<Endpoint>)>,
}

impl EndpointChange {
    /// `None` if unreadable, or empty: then messages were missed.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(message).ok()?.split('\n');
        let (version, master) = lines.next()?.split_once(' ')?;
        let version = EndpointVersion { version: version.parse().ok()?, master: master.to_owned() };
        let change = |line: &str| {
            let (pod, value) = line.split_once(' ').map_or((line, None), |(pod, value)| (pod, Some(value)));
            let pod = PodId::new(pod).ok()?;
            // Lines of later versions lead nowhere.
            let endpoint = value.and_then(|value| Endpoint::parse(pod.clone(), value).ok());
            Some((pod, endpoint))
        };
        Some(Self { version, changes: lines.filter_map(change).collect() })
    }
}

impl Store {
    pub async fn routing(&self) -> Result<Routing, StoreError> {
        let fields: RawFields = self.link.query(cmd("HGETALL").arg(keys::ROUTES)).await?;
        let mut routing = Routing::default();
        let mut rules = Vec::new();
        for (route, target) in &fields {
            let (Ok(route), Ok(target)) = (std::str::from_utf8(route), std::str::from_utf8(target)) else {
                continue;
            };
            if let Some((service, callers)) = parse_callers(route, target) {
                routing.callers.insert(service, callers);
            } else if let Some((app, alias, service)) = parse_alias(route, target) {
                routing.aliases.entry(app).or_default().insert(alias, service);
            } else {
                rules.push((route, target));
            }
        }
        routing.routes = read_rules(rules);
        Ok(routing)
    }

    /// For an hour from now, scripts that move pods maintain the endpoints.
    pub async fn follow_endpoints(
        &self,
        service: &ServiceName,
        known: Option<&EndpointVersion>,
    ) -> Result<FollowedEndpoints, StoreError> {
        let what = "following endpoints";
        let call = follow::Head {
            ep_key: keys::endpoints(service),
            known_version: known.map(|known| known.version),
            known_master: known.map(|known| known.master.as_str()),
        };
        let (answer, rest) = verdict(what, self.link.script(&call.call()).await?)?;
        let stage = match answer.as_str() {
            "SAME" => return Ok(FollowedEndpoints::Same),
            "WAIT" => return Ok(FollowedEndpoints::BeingMade),
            "SET" => ReadingStage::Read,
            "MAKE" => ReadingStage::Make(first(what, rest)?),
            other => return Err(unexpected(what, other)),
        };
        Ok(FollowedEndpoints::Changed(EndpointReading {
            store: self.clone(),
            service: service.clone(),
            stage,
            cursor: 0,
            version: None,
            endpoints: BTreeMap::new(),
        }))
    }

    /// Keeps the endpoints for an hour. A hundred cost Redis as much as a few calls of
    /// [`Store::follow_endpoints`].
    pub async fn endpoint_versions(
        &self,
        services: &[ServiceName],
    ) -> Result<Vec<Option<EndpointVersion>>, StoreError> {
        let mut versions = Vec::with_capacity(services.len());
        for piece in services.chunks(PIECE) {
            let mut pipe = redis::pipe();
            pipe.hget(keys::META, "changed_at");
            for service in piece {
                let key = keys::endpoints(service);
                pipe.cmd("HMGET").arg(&key).arg("m").arg("v").arg("s").expire(&key, KEPT_SECONDS);
            }
            let mut replies = self.link.pipeline_each(pipe).await?.into_iter();
            let master: Option<String> =
                replies.next().and_then(|reply| read("the master", reply.ok()?).ok());
            for service in piece {
                let (Some(reply), Some(_expiry)) = (replies.next(), replies.next()) else { break };
                let fields = reply.and_then(|reply| read("a version", reply));
                let is_own = |key: Option<String>| key.is_none_or(|key| key == keys::endpoints(service));
                let version = match fields {
                    Ok((Some(made_under), Some(version), key))
                        if Some(&made_under) == master.as_ref() && is_own(key.clone()) =>
                    {
                        Some(EndpointVersion { version, master: made_under })
                    }
                    // Built under another master, not written by kubeleet, copied, or gone.
                    Ok::<(Option<String>, Option<u64>, Option<String>), _>(_) | Err(_) => None,
                };
                versions.push(version);
            }
        }
        Ok(versions)
    }
}

impl EndpointReading {
    /// Handles some 500 endpoints. After an error or a dropped call, start another reading.
    pub async fn step(&mut self) -> Result<ReadingStep, StoreError> {
        match &self.stage {
            ReadingStage::Make(master) => {
                let (pods, next) = self.slot_page().await?;
                if !self.make(master, &pods, next == 0).await? {
                    return Ok(ReadingStep::Again);
                }
                self.cursor = next;
                if next == 0 {
                    self.stage = ReadingStage::Read;
                }
                Ok(ReadingStep::Made)
            }
            ReadingStage::Read => self.read_page().await,
        }
    }

    /// Scripts that start pods add later ones.
    async fn slot_page(&self) -> Result<(Vec<PodId>, u64), StoreError> {
        let (link, slots) = (&self.store.link, keys::slots(&self.service));
        let mut scan = cmd("HSCAN");
        scan.arg(&slots).arg(self.cursor).arg("COUNT").arg(PAGE);
        let (next, page): (u64, RawFields) = link.query(&scan).await?;
        let replica = |(field, _): (Vec<u8>, Vec<u8>)| {
            String::from_utf8(field).ok()?.trim_end_matches('+').parse::<u32>().ok()
        };
        let replicas: BTreeSet<u32> = page.into_iter().filter_map(replica).collect();
        let mut pods = Vec::new();
        // Both places of a replica at once: a scan may miss a pod that moves from the second to the first.
        for piece in Vec::from_iter(replicas).chunks(PAGE) {
            let mut get = cmd("HMGET");
            get.arg(&slots);
            for replica in piece {
                get.arg(replica).arg(format!("{replica}+"));
            }
            let found: Vec<Option<Vec<u8>>> = link.query(&get).await?;
            pods.extend(names::<PodId>(found.into_iter().flatten().collect()));
        }
        Ok((pods, next))
    }

    /// Returns false if the set was removed or completed.
    async fn make(&self, master: &str, pods: &[PodId], is_last: bool) -> Result<bool, StoreError> {
        let what = "making endpoints";
        let count = pods.len().div_ceil(PAGE).max(1);
        for index in 0..count {
            let ep_key = keys::endpoints(&self.service);
            let is_last = is_last && index + 1 == count;
            let mut call = follow_pods::Head { ep_key, master, is_last }.call();
            for pod in pods.iter().skip(index * PAGE).take(PAGE) {
                call.add(follow_pods::Pod { pod_key: keys::pod(pod), uuid: pod });
            }
            match word(what, self.store.link.script(&call).await?)?.as_str() {
                "OK" => {}
                "AGAIN" => return Ok(false),
                other => return Err(unexpected(what, other)),
            }
        }
        Ok(true)
    }

    async fn read_page(&mut self) -> Result<ReadingStep, StoreError> {
        let key = keys::endpoints(&self.service);
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(&key).arg("m").arg("v");
        pipe.cmd("HSCAN").arg(&key).arg(self.cursor).arg("COUNT").arg(PAGE);
        pipe.cmd("HMGET").arg(&key).arg("m").arg("v");
        let (before, (next, page), after): (VersionFields, (u64, RawFields), VersionFields) =
            self.store.link.pipeline(&pipe).await?;
        let (Some(before), Some(after)) = (version_of(before), version_of(after)) else {
            return Ok(ReadingStep::Again);
        };
        let version = self.version.get_or_insert(before);
        if after.master != version.master {
            return Ok(ReadingStep::Again);
        }
        let endpoint = |(pod, line): (Vec<u8>, Vec<u8>)| {
            let pod: PodId = parse(&pod)?;
            // Version and master are no endpoints, nor are fields of later versions.
            let endpoint = Endpoint::parse(pod.clone(), std::str::from_utf8(&line).ok()?).ok()?;
            Some((pod, endpoint))
        };
        self.endpoints.extend(page.into_iter().filter_map(endpoint));
        self.cursor = next;
        if next != 0 {
            return Ok(ReadingStep::Read);
        }
        Ok(ReadingStep::Done(version.clone(), std::mem::take(&mut self.endpoints).into_values().collect()))
    }
}

type VersionFields = (Option<String>, Option<Vec<u8>>);

fn version_of((master, version): VersionFields) -> Option<EndpointVersion> {
    Some(EndpointVersion { master: master?, version: parse(&version?)? })
}

fn first<T: redis::FromRedisValue>(what: &str, rest: Vec<Value>) -> Result<T, StoreError> {
    read(what, rest.into_iter().next().unwrap_or(Value::Nil))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_with_pods_that_are_gone_and_without_lines_that_are_none() {
        let change = EndpointChange::parse(b"7 0\np1 0 w1 a1 ready\np2\np3 junk").unwrap();
        assert_eq!(change.version, EndpointVersion { version: 7, master: "0".to_owned() });
        let changes: Vec<(&str, bool)> =
            change.changes.iter().map(|(pod, endpoint)| (pod.as_str(), endpoint.is_some())).collect();
        assert_eq!(changes, [("p1", true), ("p2", false), ("p3", false)]);
    }

    #[test]
    fn an_empty_message_and_one_of_another_program_are_no_change() {
        for message in ["", "hello", "x 0", "7"] {
            assert_eq!(EndpointChange::parse(message.as_bytes()), None, "{message:?}");
        }
    }
}
