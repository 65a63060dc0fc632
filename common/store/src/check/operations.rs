//! Copies all keys, and executes repairs.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Value, cmd};

use super::finding::{Finding, Repair, RepairCall};
use super::findings::findings;
use super::key_copy::{KeyCopy, PodCopy, VolumeCopy, text};

use crate::node::nodes::read_node;
use crate::node::volumes::read_volume;
use crate::pod::pods::{read_pod, read_slot};
use crate::reply::{RawFields, word};
use crate::scripts::repair;
use crate::service::services::read_service;
use crate::service::stored_spec::SpecFile;
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, PodId, ServiceName, VolumeName};
use model::node::HeldPod;
use model::pod::payload::Payload;

const PAGE_SIZE: usize = 1000;

impl Store {
    /// Takes seconds with a hundred thousand pods. Concurrent changes may look wrong.
    pub async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(findings(&self.copy_keys().await?))
    }

    /// Returns false if the subject has changed since.
    pub async fn repair(&self, finding: &Finding) -> Result<bool, StoreError> {
        let RepairCall { action, element, record, seen_phase, seen_node, .. } = match &finding.repair {
            Repair::Wait | Repair::Decide { .. } => return Ok(false),
            Repair::CorrectUsage { seen, actual } => return self.correct_usage(seen, actual, &[]).await,
            Repair::Scripted(call) => call,
        };
        let call = repair::Head {
            key: &finding.key,
            aside: keys::aside(&finding.key),
            record_key: record,
            action: *action,
            element: &element[..],
            seen_phase: &seen_phase[..],
            seen_node,
        };
        Ok(word("repairing", self.link.script(&call.call()).await?)? == "OK")
    }

    async fn copy_keys(&self) -> Result<KeyCopy, StoreError> {
        let mut copy = KeyCopy::default();
        // Specifications first: one that no key read later names is unused.
        for (key, kind) in self.keys_and_types("spec:*").await? {
            if kind == "string" && self.link.query::<i64>(cmd("TTL").arg(&key)).await? == -1 {
                copy.lasting_specs.insert(key["spec:".len()..].to_owned());
            }
        }
        let types = self.keys_and_types("*").await?;
        let nodes: Vec<NodeName> = names_of_nodes(&types);
        let usage_before = self.node_usage(&nodes).await?;
        for (key, actual) in &types {
            match keys::type_of(key) {
                Some(expected) if expected != actual => {
                    copy.wrong_types.push((key.clone(), expected, actual.clone()));
                    copy.unreadable_pods.extend(key.strip_prefix("pod:").map(str::to_owned));
                }
                Some(_) => match self.copy_key(&mut copy, key).await {
                    Err(error) if error.is_transient() => return Err(error),
                    Err(_) => copy.unreadable_pods.extend(key.strip_prefix("pod:").map(str::to_owned)),
                    Ok(()) => {}
                },
                None => {}
            }
        }
        copy.usage = self.node_usage(&nodes).await?;
        copy.usage
            .retain(|usage| usage_before.contains(usage) && copy.live_nodes.contains(usage.name.as_str()));
        Ok(copy)
    }

    pub(crate) async fn keys_and_types(&self, pattern: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let (mut cursor, mut found) = (0u64, BTreeMap::new());
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(PAGE_SIZE);
            let (next, page): (u64, Vec<Vec<u8>>) = self.link.query(&scan).await?;
            let page: Vec<String> = page.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect();
            if !page.is_empty() {
                let mut pipe = redis::pipe();
                for key in &page {
                    pipe.cmd("TYPE").arg(key);
                }
                let types: Vec<String> = self.link.pipeline(&pipe).await?;
                found.extend(page.into_iter().zip(types).filter(|(_, kind)| kind != "none"));
            }
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }

    async fn copy_key(&self, copy: &mut KeyCopy, key: &str) -> Result<(), StoreError> {
        match key.split_once(':') {
            None if key == keys::SERVICES => copy.services = self.members(key).await?,
            None if key == keys::NODES => copy.nodes = self.members(key).await?,
            None if key == keys::PUSHED => copy.pushed = self.members(key).await?,
            None if key == keys::FORMER_SPECS => copy.former_specs = self.members(key).await?,
            None if key == keys::SQ => drop(copy.lists.insert(key.to_owned(), self.list_of(key).await?)),
            Some(("pq" | "rq" | "fq", _)) => {
                copy.lists.insert(key.to_owned(), self.list_of(key).await?);
            }
            Some(("cs", _)) => {
                let raw: Vec<Vec<u8>> = self.link.query(cmd("SMEMBERS").arg(key)).await?;
                copy.container_sets.insert(key.to_owned(), named(raw));
            }
            Some(("stop", node)) => {
                let members: Vec<Vec<u8>> = self.link.query(cmd("SMEMBERS").arg(key)).await?;
                copy.stops.insert(node.to_owned(), members);
            }
            None if key == keys::VOLUMES => copy.volume_names = self.members(key).await?,
            Some(("volumes", "copies")) => {
                let names = self.fields_of(key).await?.into_iter().filter_map(|(field, _)| {
                    let field = String::from_utf8(field).ok()?;
                    Some(field.split_once(' ')?.0.to_owned())
                });
                copy.former_volumes = names.collect();
            }
            None if key == keys::ROUTES => {
                copy.routes = self.fields_of(key).await?.into_iter().collect();
            }
            None if key == keys::RELATIONS => {
                copy.relations = self.fields_of(key).await?.into_iter().collect();
            }
            Some(("rv", node)) => drop(copy.removals.insert(node.to_owned(), self.members(key).await?)),
            Some(("volume", name)) => self.copy_volume(copy, name).await?,
            Some(("node", name)) => self.copy_node(copy, name).await?,
            Some(("slots", name)) => self.copy_slots(copy, name).await?,
            Some(("service", name)) => self.copy_service(copy, name).await?,
            Some(("pod", id)) => self.copy_pod(copy, id).await?,
            _ => {}
        }
        Ok(())
    }

    async fn copy_pod(&self, copy: &mut KeyCopy, id: &str) -> Result<(), StoreError> {
        let fields = self.fields_of(&format!("pod:{id}")).await?;
        if !fields.is_empty() {
            let mut pod = PodCopy::new(&fields);
            match PodId::new(id).map(|id| read_pod(&id, as_reply(&fields))) {
                Ok(Err(error)) => pod.unreadable = Some(crate::broken_key::new(id, &error).problem),
                // Bounded like the amounts that the scripts reserve.
                Ok(Ok(Some(record))) => pod.request = record.request,
                Ok(Ok(None)) | Err(_) => {}
            }
            copy.pods.insert(id.to_owned(), pod);
        }
        Ok(())
    }

    async fn copy_volume(&self, copy: &mut KeyCopy, name: &str) -> Result<(), StoreError> {
        let fields = self.fields_of(&format!("volume:{name}")).await?;
        if let Ok(parsed) = VolumeName::new(name)
            && !fields.is_empty()
        {
            let read = read_volume(&parsed, as_reply(&fields));
            let is_shared =
                matches!(&read, Ok(Some(volume)) if volume.claim.scope.is_shared() && volume.node.is_none());
            let conflict = text(&fields, "conflict").replace(' ', " and ");
            let is_lost = !text(&fields, "lost").is_empty();
            let unreadable = read.err().map(|error| crate::broken_key::new(name, &error).problem);
            let volume = VolumeCopy { node: text(&fields, "node"), is_shared, conflict, is_lost, unreadable };
            copy.volumes.insert(name.to_owned(), volume);
        }
        Ok(())
    }

    async fn copy_node(&self, copy: &mut KeyCopy, name: &str) -> Result<(), StoreError> {
        let fields = self.fields_of(&format!("node:{name}")).await?;
        copy.node_records.insert(name.to_owned());
        let held = text(&fields, "held_pods");
        copy.held_pods.insert(name.to_owned(), held.lines().filter_map(HeldPod::from_line).collect());
        if text(&fields, "state") == "alive" {
            copy.live_nodes.insert(name.to_owned());
        }
        if let Ok(node) = NodeName::new(name)
            && let Err(error) = read_node(&node, as_reply(&fields))
        {
            copy.broken_nodes.insert(name.to_owned(), (crate::broken_key::new(name, &error).problem, fields));
        }
        Ok(())
    }

    async fn copy_service(&self, copy: &mut KeyCopy, name: &str) -> Result<(), StoreError> {
        let fields = self.fields_of(&format!("service:{name}")).await?;
        copy.service_specs.insert(name.to_owned(), text(&fields, "spec"));
        copy.service_routes.insert(name.to_owned(), text(&fields, "routes"));
        copy.service_relations.insert(name.to_owned(), text(&fields, "related"));
        if let Ok(service) = ServiceName::new(name)
            && let Err(error) = read_service(&service, as_reply(&fields))
        {
            copy.broken_services
                .insert(name.to_owned(), (crate::broken_key::new(name, &error).problem, fields));
        } else if text(&fields, "state") == "active" {
            self.copy_spec(copy, name, text(&fields, "spec")).await?;
        }
        Ok(())
    }

    /// Called after the service was read: a replaced specification still exists for a while.
    async fn copy_spec(&self, copy: &mut KeyCopy, service: &str, spec: String) -> Result<(), StoreError> {
        let key = format!("spec:{spec}");
        let stored: Option<Vec<u8>> = self.link.query(cmd("GET").arg(&key)).await?;
        let is_lasting = self.link.query::<i64>(cmd("TTL").arg(&key)).await? == -1;
        if !is_lasting || stored.as_ref().is_none_or(|text| SpecFile::read(text).is_err()) {
            copy.missing_specs.insert(service.to_owned(), (spec, stored.unwrap_or_default()));
        }
        Ok(())
    }

    async fn copy_slots(&self, copy: &mut KeyCopy, name: &str) -> Result<(), StoreError> {
        let fields: RawFields = self.link.query(cmd("HGETALL").arg(format!("slots:{name}"))).await?;
        let mut slots = BTreeMap::new();
        for (field, value) in fields {
            match read_slot(&field, &value) {
                Some((slot, id)) => drop(slots.insert(slot.to_string(), id.to_string())),
                None => copy.broken_slots.push((name.to_owned(), field, value)),
            }
        }
        copy.slots.insert(name.to_owned(), slots);
        Ok(())
    }

    async fn fields_of(&self, key: &str) -> Result<RawFields, StoreError> {
        self.link.query(cmd("HGETALL").arg(key)).await
    }

    async fn members(&self, key: &str) -> Result<BTreeSet<String>, StoreError> {
        let members: Vec<Vec<u8>> = self.link.query(cmd("SMEMBERS").arg(key)).await?;
        Ok(members.into_iter().filter_map(|member| String::from_utf8(member).ok()).collect())
    }

    async fn list_of(&self, key: &str) -> Result<Vec<(Vec<u8>, String)>, StoreError> {
        Ok(named(self.link.query(cmd("LRANGE").arg(key).arg(0).arg(-1)).await?))
    }
}

fn names_of_nodes(types: &BTreeMap<String, String>) -> Vec<NodeName> {
    types.keys().filter_map(|key| NodeName::new(key.strip_prefix("node:")?).ok()).collect()
}

fn as_reply(fields: &RawFields) -> Value {
    let pair = |(name, value): &(Vec<u8>, Vec<u8>)| {
        (Value::BulkString(name.clone()), Value::BulkString(value.clone()))
    };
    Value::Map(fields.iter().map(pair).collect())
}

fn named(raw: Vec<Vec<u8>>) -> Vec<(Vec<u8>, String)> {
    let id = |raw: &Vec<u8>| Payload::parse(raw.clone().into()).map(|payload| payload.id.to_string());
    raw.into_iter().map(|raw| (id(&raw).unwrap_or_default(), raw)).map(|(id, raw)| (raw, id)).collect()
}
