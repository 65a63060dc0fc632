//! Random writes that a mistaken program or person may make, and the objects that they name. Pure.

use std::collections::BTreeSet;

use kubeleet_tests::Keyspace;
use kubeleet_tests::keyspace::KeyEntry;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::wrong_values::{Command, type_of};

#[derive(Debug, Default, Clone)]
pub(crate) struct Protected(pub(crate) BTreeSet<String>);

impl Protected {
    /// The deletion of a key with entries of many objects names none.
    pub(crate) fn is_named_by(&self, command: &Command) -> bool {
        command.iter().any(|word| self.is_named_in(word))
    }

    fn is_named_in(&self, word: &[u8]) -> bool {
        let text = String::from_utf8_lossy(word);
        let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        text.split(|c| !is_id(c)).any(|part| self.0.contains(part))
    }
}

const NUMBERS: [&str; 10] =
    ["-1", "0", "1", "9223372036854775807", "9223372036854775808", "1e300", "NaN", "inf", "", "1.5"];

pub(crate) struct Writer {
    pub(crate) random: StdRng,
    protected: Protected,
}

impl Writer {
    pub(crate) fn new(random: StdRng, protected: Protected) -> Self {
        Self { random, protected }
    }

    pub(crate) fn next(&mut self, keyspace: &Keyspace, keys: &[String]) -> Command {
        loop {
            let words = self.any(keyspace, keys);
            if !self.protected.is_named_by(&words) {
                return words;
            }
        }
    }

    fn any(&mut self, keyspace: &Keyspace, keys: &[String]) -> Command {
        let key = self.key(keys);
        let entry = keyspace.get(&key);
        let bytes = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Command>();
        let value = self.value(keyspace, keys);
        let name = key.clone().into_bytes();
        let with = |command: &str, rest: Vec<Vec<u8>>| {
            [vec![command.as_bytes().to_vec(), name.clone()], rest].concat()
        };
        match self.random.random_range(0..14) {
            0 => bytes(&["DEL", &key]),
            1 => with("SET", vec![value]),
            2 => bytes(&["RENAME", &key, &self.key(keys)]),
            3 => bytes(&["PEXPIRE", &key, &self.random.random_range(1..5000).to_string()]),
            4 => bytes(&["COPY", &self.key(keys), &key, "REPLACE"]),
            _ => match entry.map_or("none", type_of) {
                "string" => with("SET", vec![value]),
                "list" => match self.random.random_range(0..4) {
                    0 => with("LPUSH", vec![value]),
                    1 => with("LSET", vec![b"0".to_vec(), value]),
                    2 => bytes(&["LPOP", &key]),
                    _ => with("LREM", vec![b"1".to_vec(), self.element(entry)]),
                },
                "set" => match self.random.random_range(0..2) {
                    0 => with("SADD", vec![value]),
                    _ => with("SREM", vec![self.element(entry)]),
                },
                "zset" => match self.random.random_range(0..2) {
                    0 => with("ZADD", vec![self.score(), self.element(entry)]),
                    _ => with("ZREM", vec![self.element(entry)]),
                },
                "hash" => match self.random.random_range(0..3) {
                    0 => with("HDEL", vec![self.element(entry)]),
                    1 => with("HSET", vec![self.element(entry), value]),
                    _ => with("HSET", vec![self.element(entry), self.number()]),
                },
                "stream" => match self.random.random_range(0..2) {
                    0 => bytes(&["XTRIM", &key, "MAXLEN", "1"]),
                    _ => with("XADD", vec![b"*".to_vec(), b"x".to_vec(), value]),
                },
                _ => self.invented(&name, value),
            },
        }
    }

    fn invented(&mut self, name: &[u8], value: Vec<u8>) -> Command {
        let one = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Command>();
        match self.random.random_range(0..5) {
            0 => one(&[b"LPUSH", name, &value]),
            1 => one(&[b"SADD", name, &value]),
            2 => one(&[b"ZADD", name, b"1", &value]),
            3 => one(&[b"XADD", name, b"*", b"x", &value]),
            _ => one(&[b"HSET", name, b"phase", &value]),
        }
    }

    fn key(&mut self, keys: &[String]) -> String {
        if self.random.random_ratio(1, 50) {
            let kinds =
                ["pod:", "node:", "service:", "slots:", "spec:", "pq:", "cs:", "stop:", "lease:", "fq:"];
            return format!(
                "{}x{}",
                kinds.choose(&mut self.random).unwrap(),
                self.random.random_range(0..20)
            );
        }
        keys.choose(&mut self.random).cloned().unwrap_or_default()
    }

    fn score(&mut self) -> Vec<u8> {
        (*["0", "-1", "inf", "-inf", "1e300"].choose(&mut self.random).unwrap()).as_bytes().to_vec()
    }

    fn number(&mut self) -> Vec<u8> {
        NUMBERS.choose(&mut self.random).unwrap().as_bytes().to_vec()
    }

    fn value(&mut self, keyspace: &Keyspace, keys: &[String]) -> Vec<u8> {
        if self.random.random_ratio(1, 4) {
            return self.number();
        }
        let key = self.key(keys);
        let mut value = match keyspace.get(&key) {
            Some(KeyEntry::Hash(fields)) => {
                let all: Vec<&Vec<u8>> = fields.values().collect();
                all.choose(&mut self.random).map(|value| value.to_vec()).unwrap_or_default()
            }
            Some(KeyEntry::Text(text)) => text.clone(),
            entry => self.element(entry),
        };
        self.mutate(&mut value);
        value
    }

    fn mutate(&mut self, value: &mut Vec<u8>) {
        if value.is_empty() {
            return;
        }
        let at = self.random.random_range(0..value.len());
        match self.random.random_range(0..4) {
            0 => value[at] ^= 1 << self.random.random_range(0..8),
            1 => value.truncate(at),
            2 => value.insert(at, self.random.random()),
            _ => {}
        }
    }

    fn element(&mut self, entry: Option<&KeyEntry>) -> Vec<u8> {
        let elements: Vec<Vec<u8>> = match entry {
            Some(KeyEntry::List(elements)) => elements.clone(),
            Some(KeyEntry::Set(elements)) => elements.iter().cloned().collect(),
            Some(KeyEntry::Hash(fields)) => fields.keys().map(|field| field.clone().into_bytes()).collect(),
            Some(KeyEntry::Sorted(members)) => {
                members.keys().map(|member| member.clone().into_bytes()).collect()
            }
            _ => Vec::new(),
        };
        if self.random.random_ratio(1, 10) {
            return b"invented".to_vec();
        }
        elements.choose(&mut self.random).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Command {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_write_names_the_objects_whose_ids_are_in_its_words() {
        let protected = Protected(["u1", "w1", "safe"].map(str::to_owned).into());
        for (words, expected) in [
            (&["DEL", "pod:u1"][..], true),
            (&["DEL", "pod:u11"], false),
            (&["DEL", "slots:safe"], true),
            (&["RENAME", "pod:u2", "node:w1"], true),
            (&["SADD", "stop:w2", "u1"], true),
            (&["LPUSH", "sq", r#"{"name":"x","uuid":"u1"}"#], true),
            (&["LPUSH", "sq", r#"{"name":"x","uuid":"u2"}"#], false),
            (&["DEL", "services"], false),
            (&["DEL", "sq"], false),
            (&["HSET", "meta", "cluster", "w10"], false),
        ] {
            assert_eq!(protected.is_named_by(&command(words)), expected, "{words:?}");
        }
    }
}
