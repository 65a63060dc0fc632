//! Routes, and the endpoints of the services that they lead to, as proxies follow them.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Value, cmd};

use super::keys;
use super::reply::{RawFields, read, unexpected, verdict, word};
use super::scripts::{follow, follow_pods};
use super::{Store, StoreError};
use crate::endpoint::Endpoint;
use crate::ids::{AppName, PodId, ServiceName};
use crate::ingress::{IngressRule, parse_alias, parse_callers, read_rules};

/// Pods whose endpoints one script makes: some milliseconds of Redis.
const PIECE: usize = 1000;
/// How long Redis keeps the endpoints of a service after a proxy has asked for them, as in the script
/// `follow`.
const KEPT_SECONDS: i64 = 3600;
/// How often the making begins again because the master changed meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// All routes of the cluster, each with the service that has it.
pub type Routes = Vec<(ServiceName, IngressRule)>;

/// The services that only some reach by name, and which do. Pods of the service itself always do.
pub type Callers = BTreeMap<ServiceName, BTreeSet<ServiceName>>;

/// The aliases of each app, and the services that they lead to.
pub type AliasesByApp = BTreeMap<AppName, BTreeMap<String, ServiceName>>;

/// What leads to services, and what is kept from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routing {
    /// The routes of all services.
    pub routes: Routes,
    /// The services that only some reach by name.
    pub callers: Callers,
    /// The further names of services.
    pub aliases: AliasesByApp,
}

/// A state of a service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointVersion {
    /// Counts the changes.
    pub version: u64,
    /// When the master took over under which the set was made. Sets of different masters have nothing in
    /// common.
    pub master: String,
}

/// The result of [`Store::follow_endpoints`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowedEndpoints {
    /// They are those that the caller knows.
    Same,
    /// All of them.
    All {
        /// Their version.
        version: EndpointVersion,
        /// The endpoints. A line that is none is left out.
        endpoints: Vec<Endpoint>,
    },
}

/// A message on the channel of a service's endpoints: what changed between a version and the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointChange {
    /// The version after the change.
    pub version: EndpointVersion,
    /// The pods that changed, each with its endpoint; `None` if it has none any more.
    pub changes: Vec<(PodId, Option<Endpoint>)>,
}

impl EndpointChange {
    /// Reads a message; `None` if it is empty, which says that messages were missed, or unreadable.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(message).ok()?.split('\n');
        let (version, master) = lines.next()?.split_once(' ')?;
        let version = EndpointVersion { version: version.parse().ok()?, master: master.to_owned() };
        let change = |line: &str| {
            let (pod, value) = line.split_once(' ').map_or((line, None), |(pod, value)| (pod, Some(value)));
            let pod = PodId::new(pod).ok()?;
            // A line that is no endpoint, as a version after this one may write, leads nowhere.
            let endpoint = value.and_then(|value| Endpoint::parse(pod.clone(), value).ok());
            Some((pod, endpoint))
        };
        Some(Self { version, changes: lines.filter_map(change).collect() })
    }
}

impl Store {
    /// Returns the routes of all services, who reaches them, and their aliases. Fields that are none of these
    /// are left out: they harm no others.
    ///
    /// # Errors
    /// See [`StoreError`].
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

    /// Returns the endpoints of a service unless they are those that the caller knows, and has the scripts
    /// that move pods keep them for the next hour.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn follow_endpoints(
        &self,
        service: &ServiceName,
        known: Option<&EndpointVersion>,
    ) -> Result<FollowedEndpoints, StoreError> {
        let what = "following endpoints";
        for _ in 0..MAX_ATTEMPTS {
            let call = follow::Head {
                ep_key: keys::endpoints(service),
                known_version: known.map(|known| known.version),
                known_master: known.map(|known| known.master.as_str()),
            };
            let (answer, rest) = verdict(what, self.link.script(&call.call()).await?)?;
            match answer.as_str() {
                "SAME" => return Ok(FollowedEndpoints::Same),
                "SET" => return read_all(what, rest),
                "MAKE" => {
                    let master: String = first(what, rest)?;
                    self.make_endpoints(service, &master).await?;
                }
                other => return Err(unexpected(what, other)),
            }
        }
        Err(unexpected(what, "a new master each time"))
    }

    /// Returns the version of the endpoints of each of these services, and keeps them for the next hour;
    /// `None` for those that have to be followed anew. A hundred of them cost Redis what a few calls of
    /// [`Store::follow_endpoints`] do.
    ///
    /// # Errors
    /// See [`StoreError`].
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
                pipe.cmd("HMGET").arg(&key).arg("m").arg("v").expire(&key, KEPT_SECONDS);
            }
            let mut replies = self.link.pipeline_each(pipe).await?.into_iter();
            let master: Option<String> =
                replies.next().and_then(|reply| read("the master", reply.ok()?).ok());
            while let (Some(reply), Some(_expiry)) = (replies.next(), replies.next()) {
                let fields = reply.and_then(|reply| read("a version", reply));
                let version = match fields {
                    Ok((Some(made_under), Some(version))) if Some(&made_under) == master.as_ref() => {
                        Some(EndpointVersion { version, master: made_under })
                    }
                    // It was made under another master, is none that kubeleet writes, or is gone.
                    Ok::<(Option<String>, Option<u64>), _>(_) | Err(_) => None,
                };
                versions.push(version);
            }
        }
        Ok(versions)
    }

    /// Makes the set from the records. Whatever interrupts it, the next caller makes it again.
    async fn make_endpoints(&self, service: &ServiceName, master: &str) -> Result<(), StoreError> {
        // After `follow`: a pod that gets its slot later is written by the script that starts it.
        let slots = self.slots(service).await?;
        let count = slots.len().div_ceil(PIECE).max(1);
        for index in 0..count {
            let is_last = index + 1 == count;
            let head = follow_pods::Head { ep_key: keys::endpoints(service), master, is_last };
            let mut call = head.call();
            for (_, pod) in slots.iter().skip(index * PIECE).take(PIECE) {
                call.add(follow_pods::Pod { pod_key: keys::pod(pod), uuid: pod });
            }
            match word("making endpoints", self.link.script(&call).await?)?.as_str() {
                "OK" => {}
                "AGAIN" => return Ok(()),
                other => return Err(unexpected("making endpoints", other)),
            }
        }
        Ok(())
    }
}

fn first<T: redis::FromRedisValue>(what: &str, rest: Vec<Value>) -> Result<T, StoreError> {
    read(what, rest.into_iter().next().unwrap_or(Value::Nil))
}

fn read_all(what: &str, rest: Vec<Value>) -> Result<FollowedEndpoints, StoreError> {
    let (version, master, fields): (u64, String, Vec<(String, String)>) = read(what, Value::Array(rest))?;
    let lines = fields.into_iter().filter(|(field, _)| field != "v" && field != "m");
    let endpoint = |(pod, line): (String, String)| Endpoint::parse(PodId::new(pod).ok()?, &line).ok();
    let endpoints = lines.filter_map(endpoint).collect();
    Ok(FollowedEndpoints::All { version: EndpointVersion { version, master }, endpoints })
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
