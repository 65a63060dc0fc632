//! Repairs in a full pass of the reconcile loop: lost list entries, wrong sums, unused specifications.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::{Value, cmd};

use crate::loaded::all_fields;
use crate::reply::{HashFields, list, names, read, unexpected, word};
use crate::scripts::{members_restore, pods_restore, pushed_forget, specs_expire, usage_correct};
use crate::{Store, StoreError, keys};
use model::ids::{Incarnation, NodeName, PodId, ServiceName, SpecId};
use model::node::{Resource, Resources};

const BATCH: usize = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreOutcome {
    Restored,
    /// It was listed already, or is no longer on a node.
    Unchanged,
    Surplus,
    UnknownService,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUsage {
    pub name: NodeName,
    pub incarnation: Incarnation,
    pub reservations: i64,
    /// As [`Resources::to_array`]. Drift may make amounts negative.
    pub used: [i64; 1 + Resource::ALL.len()],
    /// Maps `port:8080/tcp`, and `id:gpu/0` of a named resource, to `<uuid> <name>` of its pod.
    pub held: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderCorrection {
    /// See [`NodeUsage::held`].
    pub field: String,
    /// `<uuid> <name>`; empty if none.
    pub seen: String,
    pub actual: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormerSpecs {
    pub ids: Vec<SpecId>,
    /// The last write that reused one of them.
    pub(crate) reuse: String,
}

impl Store {
    /// The pods are on a node, but in no slot of `service`, or not in `pushed`. With `has_second`, a replica
    /// may have two pods. Returns one outcome per pod.
    pub async fn restore_pods(
        &self,
        service: Option<&ServiceName>,
        has_second: bool,
        pods: &[PodId],
    ) -> Result<Vec<RestoreOutcome>, StoreError> {
        let what = "restoring pods";
        let mut outcomes = Vec::with_capacity(pods.len());
        for chunk in pods.chunks(BATCH) {
            let mut call = pods_restore::Head {
                service_key: service.map_or_else(|| "service:".to_owned(), keys::service),
                wanted_key: keys::wanted(service),
                ep_key: keys::endpoints_of(service),
                service,
                has_second,
            }
            .call();
            for id in chunk {
                call.add(pods_restore::Pod { pod_key: keys::pod(id), uuid: id });
            }
            for value in list(what, self.link.script(&call).await?)? {
                outcomes.push(match word(what, value)?.as_str() {
                    "restored" => RestoreOutcome::Restored,
                    "present" | "changed" => RestoreOutcome::Unchanged,
                    "surplus" => RestoreOutcome::Surplus,
                    "unknown_service" => RestoreOutcome::UnknownService,
                    other => return Err(unexpected(what, other)),
                });
            }
        }
        Ok(outcomes)
    }

    /// Adds live nodes that a list lacks, and drops heartbeats without a record. Returns the added nodes.
    pub async fn restore_members(&self) -> Result<usize, StoreError> {
        let listed: BTreeSet<NodeName> = self.node_names().await?.into_iter().collect();
        let beating: BTreeSet<NodeName> =
            self.beats_since(0).await?.into_iter().map(|(name, _)| name).collect();
        let differing: Vec<&NodeName> = listed.symmetric_difference(&beating).collect();
        let mut restored = 0;
        for chunk in differing.chunks(BATCH) {
            let mut call = members_restore::Head { nodes: keys::NODES, beats: keys::BEATS }.call();
            for name in chunk {
                call.add(members_restore::Node { node_key: keys::node(name), node: *name });
            }
            restored += read::<usize>("restoring the list of nodes", self.link.script(&call).await?)?;
        }
        Ok(restored)
    }

    /// Forgets those that ended `retention` ago or have no record.
    pub async fn forget_pushed(&self, pods: &[PodId], retention: Duration) -> Result<usize, StoreError> {
        let mut forgotten = 0;
        for chunk in pods.chunks(BATCH) {
            let mut call = pushed_forget::Head { pushed: keys::PUSHED, retention_ms: retention }.call();
            for id in chunk {
                call.add(pushed_forget::Pod { pod_key: keys::pod(id), uuid: id });
            }
            forgotten += read::<usize>("forgetting pushed pods", self.link.script(&call).await?)?;
        }
        Ok(forgotten)
    }

    /// A new pod names one only if its service uses it again.
    pub async fn former_specs(&self) -> Result<FormerSpecs, StoreError> {
        // Ids last: a later reuse of one changes `reuse`.
        let reuse: Option<String> =
            self.link.query(cmd("HGET").arg(keys::META).arg("spec_reused_by")).await?;
        let ids = names(self.link.query(cmd("SMEMBERS").arg(keys::FORMER_SPECS)).await?);
        Ok(FormerSpecs { ids, reuse: reuse.unwrap_or_default() })
    }

    /// Expires none if one was reused since `former` was read.
    pub async fn expire_specs(&self, former: &FormerSpecs, unused: &[SpecId]) -> Result<usize, StoreError> {
        let mut expired = 0;
        for chunk in unused.chunks(BATCH) {
            let mut call =
                specs_expire::Head { former_specs: keys::FORMER_SPECS, seen_reuse: &former.reuse }.call();
            for id in chunk {
                call.add(specs_expire::Spec { spec_key: keys::spec(id), spec: id });
            }
            expired += read::<usize>("expiring specifications", self.link.script(&call).await?)?;
        }
        Ok(expired)
    }

    /// Leaves out missing nodes and unreadable numbers.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn node_usage(&self, names: &[NodeName]) -> Result<Vec<NodeUsage>, StoreError> {
        let get = |name: &NodeName| all_fields(keys::node(name));
        Ok(self.load(names, get, |name, reply| Ok(read_usage(name, reply))).await?.found())
    }

    /// Returns false if something was reserved or released meanwhile.
    pub async fn correct_usage(
        &self,
        seen: &NodeUsage,
        actual: &Resources,
        held: &[HolderCorrection],
    ) -> Result<bool, StoreError> {
        let [seen_pods, seen_used @ ..] = seen.used;
        let mut correct = usage_correct::Head {
            node_key: keys::node(&seen.name),
            node: &seen.name,
            incarnation: &seen.incarnation,
            seen_reservations: seen.reservations,
            seen_pods,
            seen_used: seen_used.map(|amount| amount.to_string()).join(" "),
            pods: actual.pods,
            resources: actual,
        }
        .call();
        for HolderCorrection { field, seen, actual } in held {
            correct.add(usage_correct::Port { field, seen_holder: seen, holder: actual });
        }
        Ok(word("correcting what a node uses", self.link.script(&correct).await?)? == "OK")
    }
}

fn read_usage(name: &NodeName, value: Value) -> Option<NodeUsage> {
    let fields = HashFields::read("reading what a node uses", value).ok()??;
    let number = |field: &str| fields.number(field).ok();
    let incarnation = fields.parse_opt("incarnation").ok()??;
    let mut used = [number("used_pods")?; 1 + Resource::ALL.len()];
    for (at, resource) in Resource::ALL.into_iter().enumerate() {
        used[at + 1] = number(&resource.used_field())?;
    }
    let of_prefix = |prefix: &'static str| {
        fields.with_prefix(prefix).map(move |(held, holder)| (format!("{prefix}{held}"), holder))
    };
    let held = of_prefix("port:").chain(of_prefix("id:")).collect();
    Some(NodeUsage { name: name.clone(), incarnation, reservations: number("reservations")?, used, held })
}
