//! All that stands in Redis, as far as the invariants speak of it. It is kept up to date key by key.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::redis::{FromRedisValue, Value, from_redis_value};
use common::payload::Payload;

/// Rows of `{key, content}`, of the keys that are named or of all; a key that is not there has no content, and a
/// tombstone is just that word.
pub(super) const READ: &str = r"
local out = {}
for _, key in ipairs(#KEYS > 0 and KEYS or redis.call('KEYS', '*')) do
  local head = string.sub(key, 1, 3)
  local value
  if redis.call('EXISTS', key) == 0 then
    value = false
  elseif head == 'pod' then
    value = redis.call('HMGET', key, 'phase', 'node', 'assignment', 'cpu', 'memory', 'service', 'replica', 'generation', 'image', 'reason', 'message')
    for i = 1, 11 do value[i] = value[i] or '' end
    if value[1] == 'stopped' then value = 'stopped' end
  elseif key == 'sq' or key == 'dq' or head == 'fq:' or head == 'pq:' or head == 'rq:' then
    value = redis.call('LRANGE', key, 0, -1)
  elseif head == 'cs:' or head == 'sto' or key == 'pushed' then
    value = redis.call('SMEMBERS', key)
    table.sort(value)
  elseif head == 'nod' and key ~= 'nodes' then
    value = redis.call('HMGET', key, 'state', 'incarnation', 'cpu', 'memory', 'pods', 'used_cpu', 'used_memory', 'used_pods')
    for i = 1, 8 do value[i] = value[i] or '' end
  elseif key == 'uq' or head == 'slo' then
    value = redis.call('HGETALL', key)
  elseif head == 'ser' and key ~= 'services' then
    value = redis.call('HMGET', key, 'state', 'replicas', 'generation', 'spec_text')
  end
  if value ~= nil then out[#out + 1] = { key, value } end
end
return out";

/// A pod that is no tombstone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) phase: String,
    pub(super) node: String,
    pub(super) assignment: String,
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) service: String,
    pub(super) replica: u32,
    pub(super) generation: u64,
    pub(super) image: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Pod {
    /// Whether its node has set something aside for it.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.phase.as_str(), "assigned" | "running" | "stopping")
    }

    /// Whether its payload has to be somewhere.
    pub(super) fn is_live(&self) -> bool {
        self.phase == "pending" || self.is_held()
    }
}

/// A node: has and used are CPU, memory, pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) state: String,
    pub(super) incarnation: String,
    pub(super) has: [i64; 3],
    pub(super) used: [i64; 3],
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) active: bool,
    pub(super) replicas: u32,
    pub(super) generation: u64,
    pub(super) image: String,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct View {
    /// As it was read, of every key that is there.
    rows: BTreeMap<String, Value>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) stopped: BTreeSet<String>,
    /// Queues, in-flight lists, container sets, `uq`, `dq`: what stands in them.
    pub(super) payloads: BTreeMap<String, Vec<Vec<u8>>>,
    pub(super) stops: BTreeMap<String, Vec<String>>,
    pub(super) pushed: BTreeSet<String>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) services: BTreeMap<String, Service>,
    pub(super) slots: BTreeMap<String, BTreeMap<u32, String>>,
}

impl View {
    /// Takes in what was read of some keys; true when something is not as it was.
    pub(super) fn take(&mut self, rows: Value) -> bool {
        let mut changed = false;
        for (key, content) in from_redis_value::<Vec<(String, Value)>>(rows).unwrap() {
            let content = (content != Value::Nil).then_some(content);
            if self.rows.get(&key) == content.as_ref() {
                continue;
            }
            changed = true;
            self.set(&key, content.as_ref());
            put(&mut self.rows, &key, content);
        }
        changed
    }

    fn set(&mut self, key: &str, content: Option<&Value>) {
        match key.split_once(':') {
            Some(("pod", uuid)) => {
                let tombstone = content.is_some_and(|content| matches!(content, Value::BulkString(_)));
                put(&mut self.pods, uuid, content.filter(|_| !tombstone).map(pod));
                if tombstone {
                    self.stopped.insert(uuid.to_owned());
                } else {
                    self.stopped.remove(uuid);
                }
            }
            Some(("stop", node)) => put(&mut self.stops, node, content.map(read)),
            Some(("node", name)) => put(&mut self.nodes, name, content.map(node)),
            Some(("service", name)) => put(&mut self.services, name, content.map(service)),
            Some(("slots", name)) => put(&mut self.slots, name, content.map(read)),
            Some(("fq" | "pq" | "rq" | "cs", _)) => put(&mut self.payloads, key, content.map(read)),
            None if key == "sq" || key == "dq" => put(&mut self.payloads, key, content.map(read)),
            None if key == "uq" => {
                let parked = content.map(read::<BTreeMap<String, Vec<u8>>>);
                put(&mut self.payloads, key, parked.map(|parked| parked.into_values().collect()));
            }
            None if key == "pushed" => self.pushed = content.map(read).unwrap_or_default(),
            _ => {}
        }
    }

    /// The keys whose content is another one there. Rows alone say nothing: Redis' hashes have no order.
    pub(super) fn differing(&self, other: &Self) -> Vec<String> {
        let bare = |view: &Self| Self { rows: BTreeMap::new(), ..view.clone() };
        if bare(self) == bare(other) {
            return Vec::new();
        }
        let keys: BTreeSet<&String> = self.rows.keys().chain(other.rows.keys()).collect();
        keys.into_iter().filter(|key| self.rows.get(*key) != other.rows.get(*key)).cloned().collect()
    }

    /// What stands in a queue or set.
    pub(super) fn in_key(&self, key: &str) -> &[Vec<u8>] {
        self.payloads.get(key).map_or(&[], Vec::as_slice)
    }
}

/// In its place, or away with what was there.
fn put<T>(into: &mut BTreeMap<String, T>, key: &str, value: Option<T>) {
    match value {
        Some(value) => drop(into.insert(key.to_owned(), value)),
        None => drop(into.remove(key)),
    }
}

fn read<T: FromRedisValue>(value: &Value) -> T {
    from_redis_value(value.clone()).unwrap()
}

fn pod(value: &Value) -> Pod {
    let [phase, node, assignment, cpu, memory, service, replica, generation, image, reason, message] =
        texts(value);
    let (cpu, memory) = (number(&cpu), number(&memory));
    let (replica, generation) = (number(&replica) as u32, number(&generation) as u64);
    Pod { phase, node, assignment, cpu, memory, service, replica, generation, image, reason, message }
}

fn node(value: &Value) -> Node {
    let [state, incarnation, cpu, memory, pods, used_cpu, used_memory, used_pods] = texts(value);
    let has = [number(&cpu), number(&memory), number(&pods)];
    let used = [number(&used_cpu), number(&used_memory), number(&used_pods)];
    Node { state, incarnation, has, used }
}

fn service(value: &Value) -> Service {
    let [state, replicas, generation, spec] = texts(value);
    let spec: serde_json::Value = serde_json::from_str(&spec).unwrap_or_default();
    let image = spec["pod"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
    let (replicas, generation) = (number(&replicas) as u32, number(&generation) as u64);
    Service { active: state == "active", replicas, generation, image }
}

fn texts<const N: usize>(value: &Value) -> [String; N] {
    let texts: Vec<String> = read(value);
    texts.try_into().expect("the script gives so many")
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

/// Enough of a uuid to tell pods apart.
pub(super) fn short(uuid: &str) -> &str {
    uuid.get(..8).unwrap_or(uuid)
}

/// Which pod a payload is of, remembered by its bytes: they never change.
#[derive(Default)]
pub(super) struct Heads(HashMap<Vec<u8>, Option<String>>);

impl Heads {
    /// None for what is no pod.
    pub(super) fn pod_of(&mut self, raw: &[u8]) -> Option<&str> {
        if !self.0.contains_key(raw) {
            let payload = Payload::parse(raw.to_vec().into()).ok();
            self.0.insert(raw.to_vec(), payload.map(|payload| payload.id.to_string()));
        }
        self.0.get(raw)?.as_deref()
    }
}
