//! The data that invariants refer to; after a command, only the keys that it may have changed are read again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::redis::{FromRedisValue, Value, from_redis_value};
use model::node::{Nomination, ResourceIds};
use model::pod::payload::Payload;
use model::service::members::Members;

/// Returns `{key, content}` for each key in KEYS, or for all. A missing key's content is nil, a tombstone's
/// `stopped`.
pub(crate) const READ_SCRIPT: &str = r"
local out = {}
-- Whether a key is missing is asked only if it looks empty.
local function fields(key, count, ...)
  local value = redis.call('HMGET', key, ...)
  local some = false
  for i = 1, count do
    if value[i] then some = true else value[i] = '' end
  end
  return (some or redis.call('EXISTS', key) == 1) and value
end
for _, key in ipairs(#KEYS > 0 and KEYS or redis.call('KEYS', '*')) do
  local head = string.sub(key, 1, 3)
  local value
  if head == 'pod' then
    value = fields(key, 14, 'phase', 'node', 'assignment', 'cpu', 'memory', 'pids', 'disk', 'service', 'replica',
      'generation', 'image', 'reason', 'message', 'ids')
    if value and value[1] == 'stopped' then value = 'stopped' end
  elseif key == 'sq' or key == 'dq' or head == 'fq:' or head == 'pq:' or head == 'rq:' then
    value = redis.call('LRANGE', key, 0, -1)
  elseif head == 'cs:' or head == 'sto' or key == 'pushed' then
    value = redis.call('SMEMBERS', key)
    table.sort(value)
  elseif head == 'nod' and key ~= 'nodes' then
    value = fields(key, 25, 'state', 'incarnation', 'cpu', 'memory', 'pids', 'disk', 'pods', 'used_cpu', 'used_memory',
      'used_pids', 'used_disk', 'used_pods', 'own_labels', 'cordoned', 'nominated', 'id:gpu/0', 'id:gpu/1', 'id:gpu/2', 'id:gpu/3',
      'id:gpu/4', 'id:slots/0', 'id:slots/1', 'id:slots/2', 'id:slots/3', 'id:slots/4')
  elseif key == 'uq' or head == 'slo' or head == 'ep:' or head == 'don' then
    value = redis.call('HGETALL', key)
  elseif string.sub(key, 1, 8) == 'service:' then
    value = fields(key, 10, 'state', 'replicas', 'generation', 'spec_text', 'kind', 'ended_at', 'failure', 'created_at',
      'ticks', 'members')
  end
  if value ~= nil then
    -- Redis keeps no empty list, set or hash.
    if value and #value == 0 then value = false end
    out[#out + 1] = { key, value }
  end
end
return out";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SimulatedPod {
    pub(crate) phase: String,
    pub(crate) node: String,
    pub(crate) assignment: String,
    /// As `Resource::ALL`, and the pod itself.
    pub(crate) request: [i64; 5],
    pub(crate) service: String,
    pub(crate) replica: u32,
    pub(crate) generation: u64,
    pub(crate) image: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) ids: ResourceIds,
}

impl SimulatedPod {
    pub(crate) fn has_reservation(&self) -> bool {
        matches!(self.phase.as_str(), "assigned" | "running" | "stopping")
    }

    pub(crate) fn is_active(&self) -> bool {
        self.phase == "pending" || self.has_reservation()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObservedNode {
    pub(crate) state: String,
    pub(crate) incarnation: String,
    pub(crate) capacity: [i64; 5],
    pub(crate) used: [i64; 5],
    pub(crate) has_label_disk: bool,
    pub(crate) is_cordoned: bool,
    pub(crate) nomination: Option<Nomination>,
    /// The uuid of the pod that has it, by id of a named resource.
    pub(crate) given_ids: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObservedService {
    pub(crate) is_active: bool,
    pub(crate) replicas: u32,
    pub(crate) generation: u64,
    pub(crate) image: String,
    /// `job`, `cron`, `global`, or nothing.
    pub(crate) kind: String,
    pub(crate) has_ended: bool,
    pub(crate) has_failed: bool,
    /// Two services of one name differ in it.
    pub(crate) created_by: String,
    pub(crate) ticks: String,
    pub(crate) members: Members,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SimulatedState {
    rows: BTreeMap<String, Value>,
    pub(crate) pods: BTreeMap<String, SimulatedPod>,
    pub(crate) stopped: BTreeSet<String>,
    pub(crate) payloads: BTreeMap<String, Vec<Vec<u8>>>,
    pub(crate) stops: BTreeMap<String, Vec<String>>,
    pub(crate) pushed: BTreeSet<String>,
    pub(crate) nodes: BTreeMap<String, ObservedNode>,
    pub(crate) services: BTreeMap<String, ObservedService>,
    /// By service: the pod in each slot, `3` or `3+`.
    pub(crate) slots: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) done: BTreeMap<String, BTreeMap<String, String>>,
    /// With the fields `v`, `m`, `s` and `making`, by followed service.
    pub(crate) endpoints: BTreeMap<String, BTreeMap<String, String>>,
}

impl SimulatedState {
    pub(crate) fn apply(&mut self, rows: Value) -> bool {
        let mut changed = false;
        for (key, content) in from_redis_value::<Vec<(String, Value)>>(rows).unwrap() {
            let content = (content != Value::Nil).then_some(content);
            if self.rows.get(&key) == content.as_ref() {
                continue;
            }
            changed = true;
            self.parse(&key, content.as_ref());
            set(&mut self.rows, &key, content);
        }
        changed
    }

    fn parse(&mut self, key: &str, content: Option<&Value>) {
        match key.split_once(':') {
            Some(("pod", uuid)) => {
                let tombstone = content.is_some_and(|content| matches!(content, Value::BulkString(_)));
                set(&mut self.pods, uuid, content.filter(|_| !tombstone).map(pod));
                if tombstone {
                    self.stopped.insert(uuid.to_owned());
                } else {
                    self.stopped.remove(uuid);
                }
            }
            Some(("stop", node)) => set(&mut self.stops, node, content.map(read)),
            Some(("node", name)) => set(&mut self.nodes, name, content.map(node)),
            Some(("service", name)) => set(&mut self.services, name, content.map(service)),
            Some(("slots", name)) => set(&mut self.slots, name, content.map(read)),
            Some(("done", name)) => set(&mut self.done, name, content.map(read)),
            Some(("ep", name)) => set(&mut self.endpoints, name, content.map(read)),
            Some(("fq" | "pq" | "rq" | "cs", _)) => set(&mut self.payloads, key, content.map(read)),
            None if key == "sq" || key == "dq" => set(&mut self.payloads, key, content.map(read)),
            None if key == "uq" => {
                let parked = content.map(read::<BTreeMap<String, Vec<u8>>>);
                set(&mut self.payloads, key, parked.map(|parked| parked.into_values().collect()));
            }
            None if key == "pushed" => self.pushed = content.map(read).unwrap_or_default(),
            _ => {}
        }
    }

    /// Redis' hashes have no order.
    pub(crate) fn differing_keys(&self, other: &Self) -> Vec<String> {
        let without_rows = |state: &Self| Self { rows: BTreeMap::new(), ..state.clone() };
        if without_rows(self) == without_rows(other) {
            return Vec::new();
        }
        let keys: BTreeSet<&String> = self.rows.keys().chain(other.rows.keys()).collect();
        keys.into_iter().filter(|key| self.rows.get(*key) != other.rows.get(*key)).cloned().collect()
    }

    pub(crate) fn payloads_in(&self, key: &str) -> &[Vec<u8>] {
        self.payloads.get(key).map_or(&[], Vec::as_slice)
    }
}

fn set<T>(into: &mut BTreeMap<String, T>, key: &str, value: Option<T>) {
    match value {
        Some(value) => drop(into.insert(key.to_owned(), value)),
        None => drop(into.remove(key)),
    }
}

fn read<T: FromRedisValue>(value: &Value) -> T {
    from_redis_value(value.clone()).unwrap()
}

fn pod(value: &Value) -> SimulatedPod {
    let [
        phase,
        node,
        assignment,
        cpu,
        memory,
        pids,
        disk,
        service,
        replica,
        generation,
        image,
        reason,
        message,
        ids,
    ] = texts(value);
    let request = [number(&cpu), number(&memory), number(&pids), number(&disk), 1];
    let (replica, generation) = (number(&replica) as u32, number(&generation) as u64);
    let ids = ResourceIds::from_text(&ids);
    SimulatedPod {
        phase,
        node,
        assignment,
        request,
        service,
        replica,
        generation,
        image,
        reason,
        message,
        ids,
    }
}

fn node(value: &Value) -> ObservedNode {
    let [state, incarnation, fields @ ..]: [String; 25] = texts(value);
    let (amounts, [own_labels, cordoned, nominated, holders @ ..]) =
        fields.split_first_chunk::<10>().unwrap()
    else {
        panic!("READ_SCRIPT returns this many fields");
    };
    let amounts = amounts.each_ref().map(|amount| number(amount));
    let capacity = std::array::from_fn(|at| amounts[at]);
    let used = std::array::from_fn(|at| amounts[5 + at]);
    let (has_label_disk, is_cordoned) = (own_labels.contains("ssd"), cordoned == "1");
    let nomination = Nomination::from_stored(nominated);
    let ids = ["gpu", "slots"].into_iter().flat_map(|name| (0..5).map(move |id| format!("{name}/{id}")));
    let uuid = |(id, holder): (String, &String)| Some((id, holder.split_once(' ')?.0.to_owned()));
    let given_ids = ids.zip(holders).filter_map(uuid).collect();
    ObservedNode { state, incarnation, capacity, used, has_label_disk, is_cordoned, nomination, given_ids }
}

fn service(value: &Value) -> ObservedService {
    let [state, replicas, generation, spec, kind, ended_at, failure, created_by, ticks, members] =
        texts(value);
    let spec: serde_json::Value = serde_json::from_str(&spec).unwrap_or_default();
    let image = spec["pod"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
    let (replicas, generation) = (number(&replicas) as u32, number(&generation) as u64);
    let (has_ended, has_failed) = (!ended_at.is_empty(), !failure.is_empty());
    let is_active = state == "active";
    let members = Members::from_stored(members);
    ObservedService {
        is_active,
        replicas,
        generation,
        image,
        kind,
        has_ended,
        has_failed,
        created_by,
        ticks,
        members,
    }
}

fn texts<const N: usize>(value: &Value) -> [String; N] {
    let texts: Vec<String> = read(value);
    texts.try_into().expect("READ_SCRIPT returns this many fields")
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

pub(crate) fn short(uuid: &str) -> &str {
    uuid.get(..8).unwrap_or(uuid)
}

#[derive(Default)]
pub(crate) struct PodIdCache(HashMap<Vec<u8>, Option<String>>);

impl PodIdCache {
    pub(crate) fn pod_of(&mut self, raw: &[u8]) -> Option<&str> {
        if !self.0.contains_key(raw) {
            let payload = Payload::parse(raw.to_vec().into()).ok();
            self.0.insert(raw.to_vec(), payload.map(|payload| payload.id.to_string()));
        }
        self.0.get(raw)?.as_deref()
    }
}

pub(crate) fn count_junk(observed: &SimulatedState) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (key, payloads) in &observed.payloads {
        for payload in payloads {
            let text = String::from_utf8_lossy(payload);
            let junk = if key == "dq" {
                serde_json::from_str::<serde_json::Value>(&text)
                    .ok()
                    .and_then(|dead_letter| Some(dead_letter.get("payload")?.as_str()?.to_owned()))
            } else {
                Some(text.into_owned())
            };
            if let Some(junk) = junk.filter(|junk| junk.starts_with("junk")) {
                *counts.entry(junk).or_insert(0) += 1;
            }
        }
    }
    counts
}
