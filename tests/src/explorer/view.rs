//! All that stands in Redis, read in one step after every step of the explorer, as far as the invariants speak of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::redis::{FromRedisValue, Value, from_redis_value};
use common::payload::Payload;

/// Rows of `{key, content}`; tombstones come in one row, by key alone.
pub(super) const READ: &str = r"
local out, stopped = {}, {}
local keys = redis.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  local head = string.sub(key, 1, 3)
  local value
  if head == 'pod' then
    value = redis.call('HMGET', key, 'phase', 'node', 'assignment', 'cpu', 'memory', 'service', 'replica', 'generation', 'image', 'reason')
    if value[1] == 'stopped' then
      stopped[#stopped + 1] = string.sub(key, 5)
      value = nil
    else
      for i = 1, 10 do value[i] = value[i] or '' end
    end
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
  if value then out[#out + 1] = { key, value } end
end
out[#out + 1] = { 'stopped', stopped }
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
    pub(super) fn of(value: &Value) -> Self {
        let mut view = Self::default();
        let rows: Vec<(String, Value)> = read(value);
        for (key, content) in rows {
            match key.split_once(':') {
                Some(("pod", uuid)) => {
                    view.pods.insert(uuid.to_owned(), pod(&content));
                }
                Some(("stop", node)) => {
                    view.stops.insert(node.to_owned(), read(&content));
                }
                Some(("node", name)) => {
                    view.nodes.insert(name.to_owned(), node(&content));
                }
                Some(("service", name)) => {
                    view.services.insert(name.to_owned(), service(&content));
                }
                Some(("slots", name)) => {
                    view.slots.insert(name.to_owned(), read(&content));
                }
                Some(("fq" | "pq" | "rq" | "cs", _)) => {
                    view.payloads.insert(key, read(&content));
                }
                None if key == "sq" || key == "dq" => {
                    view.payloads.insert(key, read(&content));
                }
                None if key == "uq" => {
                    let parked: BTreeMap<String, Vec<u8>> = read(&content);
                    view.payloads.insert(key, parked.into_values().collect());
                }
                None if key == "pushed" => view.pushed = read(&content),
                None if key == "stopped" => view.stopped = read(&content),
                _ => {}
            }
        }
        view
    }

    /// What stands in a queue or set.
    pub(super) fn in_key(&self, key: &str) -> &[Vec<u8>] {
        self.payloads.get(key).map_or(&[], Vec::as_slice)
    }
}

fn read<T: FromRedisValue>(value: &Value) -> T {
    from_redis_value(value.clone()).unwrap()
}

fn pod(value: &Value) -> Pod {
    let [phase, node, assignment, cpu, memory, service, replica, generation, image, reason] = texts(value);
    let (cpu, memory) = (number(&cpu), number(&memory));
    let (replica, generation) = (number(&replica) as u32, number(&generation) as u64);
    Pod { phase, node, assignment, cpu, memory, service, replica, generation, image, reason }
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
