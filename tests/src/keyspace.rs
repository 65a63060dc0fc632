//! The whole content of a Redis, read atomically, and differences between two readings.

use std::collections::{BTreeMap, BTreeSet};

use ::redis::aio::MultiplexedConnection;
use ::redis::{FromRedisValue, RedisError, Value, cmd, from_redis_value};

use crate::Redis;

#[derive(Debug, Clone, PartialEq)]
pub enum KeyEntry {
    Text(Vec<u8>),
    /// Head first.
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Hash(BTreeMap<String, Vec<u8>>),
    /// Member and score.
    Sorted(BTreeMap<String, f64>),
    /// The number of entries ever added.
    Stream(u64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Keyspace {
    entries: BTreeMap<String, KeyEntry>,
    expiring: BTreeSet<String>,
}

const READ: &str = r"
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key)['ok']
  local value
  if kind == 'string' then value = redis.call('GET', key)
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else
    local info = redis.call('XINFO', 'STREAM', key)
    for i = 1, #info, 2 do if info[i] == 'entries-added' then value = info[i + 1] end end
    value = value or redis.call('XLEN', key)
  end
  out[#out + 1] = { key, kind, value, redis.call('PTTL', key) > 0 and 1 or 0 }
end
return out";

impl Keyspace {
    pub async fn read(redis: &Redis) -> Self {
        Self::of(redis.cli(&["EVAL", READ, "0"]).await)
    }

    pub async fn read_over(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        Ok(Self::of(cmd("EVAL").arg(READ).arg(0).query_async(connection).await?))
    }

    #[cfg(test)]
    pub(crate) fn with<'a>(entries: impl IntoIterator<Item = (&'a str, KeyEntry)>) -> Self {
        let entries = entries.into_iter().map(|(key, entry)| (key.to_owned(), entry)).collect();
        Self { entries, expiring: BTreeSet::new() }
    }

    fn of(rows: Vec<(String, String, Value, bool)>) -> Self {
        let expiring = rows.iter().filter(|row| row.3).map(|row| row.0.clone()).collect();
        let entries = rows.into_iter().map(|(key, kind, value, _)| (key, entry(&kind, value))).collect();
        Self { entries, expiring }
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &KeyEntry)> {
        self.entries.iter().map(|(key, entry)| (key.as_str(), entry))
    }

    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a KeyEntry)> {
        self.entries().filter_map(move |(key, entry)| Some((key.strip_prefix(prefix)?, entry)))
    }

    pub fn get(&self, key: &str) -> Option<&KeyEntry> {
        self.entries.get(key)
    }

    pub fn elements(&self, key: &str) -> Vec<&[u8]> {
        match self.entries.get(key) {
            Some(KeyEntry::List(elements)) => elements.iter().map(Vec::as_slice).collect(),
            Some(KeyEntry::Set(elements)) => elements.iter().map(Vec::as_slice).collect(),
            Some(KeyEntry::Hash(fields)) => fields.values().map(Vec::as_slice).collect(),
            _ => Vec::new(),
        }
    }

    pub fn fields(&self, key: &str) -> Vec<(String, String)> {
        let Some(KeyEntry::Hash(fields)) = self.get(key) else { return Vec::new() };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.iter().map(|(field, value)| (field.clone(), text(value))).collect()
    }

    pub fn field(&self, key: &str, field: &str) -> String {
        match self.entries.get(key) {
            Some(KeyEntry::Hash(fields)) => {
                fields.get(field).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
            }
            _ => String::new(),
        }
    }

    /// One line each: `pod:u phase: "pending" -> "assigned"`.
    pub fn changes(&self, after: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let keys: BTreeSet<&String> = self.entries.keys().chain(after.entries.keys()).collect();
        for key in keys {
            match (self.entries.get(key), after.entries.get(key)) {
                (Some(KeyEntry::Hash(before)), Some(KeyEntry::Hash(after))) => {
                    fields(&mut lines, key, before, after)
                }
                (before, after) if before != after => {
                    let shown = |entry: Option<&KeyEntry>| entry.map_or_else(|| "nothing".to_owned(), show);
                    lines.push(format!("{key}: {} -> {}", shown(before), shown(after)));
                }
                _ => {}
            }
            if self.expiring.contains(key) != after.expiring.contains(key) {
                lines.push(format!("{key}: its time to live changed"));
            }
        }
        lines
    }
}

fn entry(kind: &str, value: Value) -> KeyEntry {
    fn read<T: FromRedisValue>(value: Value) -> T {
        from_redis_value(value).unwrap()
    }
    match kind {
        "string" => KeyEntry::Text(read(value)),
        "list" => KeyEntry::List(read(value)),
        "set" => KeyEntry::Set(read::<Vec<Vec<u8>>>(value).into_iter().collect()),
        "hash" => KeyEntry::Hash(pairs(read(value))),
        "zset" => KeyEntry::Sorted(pairs(read::<Vec<Vec<u8>>>(value)).into_iter().map(scored).collect()),
        _ => KeyEntry::Stream(read(value)),
    }
}

fn pairs<T: AsRef<[u8]> + Clone>(flat: Vec<T>) -> BTreeMap<String, T> {
    flat.chunks(2)
        .map(|pair| (String::from_utf8_lossy(pair[0].as_ref()).into_owned(), pair[1].clone()))
        .collect()
}

fn scored((member, score): (String, Vec<u8>)) -> (String, f64) {
    (member, String::from_utf8(score).unwrap().parse().unwrap())
}

fn fields(
    lines: &mut Vec<String>,
    key: &str,
    before: &BTreeMap<String, Vec<u8>>,
    after: &BTreeMap<String, Vec<u8>>,
) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names.into_iter().filter(|name| before.get(*name) != after.get(*name)) {
        let shown =
            |fields: &BTreeMap<String, Vec<u8>>| fields.get(name).map_or("nothing".into(), |v| text(v));
        lines.push(format!("{key} {name}: {} -> {}", shown(before), shown(after)));
    }
}

fn text(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

fn show(entry: &KeyEntry) -> String {
    let several = |elements: Vec<String>| format!("[{}]", elements.join(", "));
    match entry {
        KeyEntry::Text(value) => text(value),
        KeyEntry::List(elements) => several(elements.iter().map(|e| text(e)).collect()),
        KeyEntry::Set(elements) => several(elements.iter().map(|e| text(e)).collect()),
        KeyEntry::Hash(fields) => several(fields.iter().map(|(k, v)| format!("{k}={}", text(v))).collect()),
        KeyEntry::Sorted(members) => several(members.iter().map(|(m, s)| format!("{m}={s}")).collect()),
        KeyEntry::Stream(added) => format!("{added} entries"),
    }
}
