//! What is carried out on Redis: almost every command as it came, with the explorer's time, and in an order of its own
//! where Redis has none. And the wake-ups that come of it.

use ::redis::Value;
use bytes::Bytes;
use common::store::Words;

use super::bus::Request;
use super::scripts::{HINTS, KEY};
use super::seat::Hint;
use super::who::Who;
use super::world::World;

impl World {
    pub(super) fn carry_out(&mut self, request: &Request) -> Vec<Value> {
        self.stats.requests += 1;
        request.commands.iter().map(|words| self.command(request.who, words)).collect()
    }

    /// Carries out one command.
    fn command(&mut self, who: Who, words: &Words) -> Value {
        let name = String::from_utf8_lossy(&words[0]).into_owned();
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        match name.as_str() {
            "PING" => return Value::SimpleString("PONG".to_owned()),
            "ROLE" => return Value::Array(vec![Value::BulkString(b"master".to_vec())]),
            "TIME" => {
                let now = self.redis_now();
                let (seconds, micros) = (now / 1000, now % 1000 * 1000);
                let word = |number: u64| Value::BulkString(number.to_string().into_bytes());
                return Value::Array(vec![word(seconds), word(micros)]);
            }
            "EVALSHA" => return self.script(who, words),
            "LRANGE" if self.switches.no_sweep && words[1].starts_with(b"rq:") && who.host().is_some() => {
                return Value::Array(Vec::new());
            }
            _ => {}
        }
        let reply = match name.as_str() {
            "BRPOPLPUSH" => {
                self.change(&[b"LMOVE", &words[1][..], &words[2], b"RIGHT", b"LEFT"], &words[1..3])
            }
            "LMOVE" => self.change(words, &words[1..3]),
            "SRANDMEMBER" => {
                let count = text(&words[2]).parse().unwrap();
                let mut members = list(self.redis.ask(&[b"SMEMBERS", &words[1][..]]));
                self.random.shuffle(&mut members);
                members.truncate(count);
                Value::Array(members)
            }
            "SMEMBERS" => Value::Array(list(self.redis.ask(words))),
            "HGETALL" => sorted_pairs(self.redis.ask(words)),
            "HSCAN" => page(plain(sorted_pairs(self.redis.ask(&[b"HGETALL", &words[1][..]])))),
            "SSCAN" => page(list(self.redis.ask(&[b"SMEMBERS", &words[1][..]]))),
            "SCAN" => page(list(self.redis.ask(&[b"KEYS", &words[3][..]]))),
            _ => self.redis.ask(words),
        };
        let moves = matches!(name.as_str(), "BRPOPLPUSH" | "LMOVE") && reply != Value::Nil;
        if self.is_traced() && (moves || !matches!(name.as_str(), "BRPOPLPUSH" | "LMOVE")) {
            let key = words.get(1).map(|word| text(word)).unwrap_or_default();
            let reply = self.in_short(&reply);
            self.say(who, format!("{name} {key} -> {reply}"));
        }
        reply
    }

    fn script(&mut self, who: Who, words: &Words) -> Value {
        let Some((name, hash)) = self.scripts.get(&words[1]).cloned() else {
            panic!("a script that nobody knows: {}", String::from_utf8_lossy(&words[1]));
        };
        let keys: usize = String::from_utf8_lossy(&words[2]).parse().unwrap();
        let (keys, arguments) = words[3..].split_at(keys);
        self.before(who, name, arguments);
        let now = self.redis_now().to_string();
        let mut changed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        changed[1] = hash.as_bytes();
        self.redis.add(&["HSET", KEY, "now", &now]);
        self.redis.add(&changed);
        self.redis.add(&["LPOP", HINTS, "1000"]);
        // A script may change what it declares, and nothing else.
        self.look_at(keys);
        let [mut reply, hints, rows] = self.redis.answers(1);
        self.rows.push(rows);
        if name == "heartbeat" {
            sort_nested(&mut reply);
        }
        self.after(who, name, &reply);
        self.take_hints(hints);
        if self.is_traced() {
            let (arguments, said) = (self.arguments(arguments), self.in_short(&reply));
            self.say(who, format!("{name} {arguments} -> {said}"));
        }
        reply
    }

    fn take_hints(&mut self, hints: Value) {
        let words = plain_list(hints);
        for pair in words.chunks_exact(2) {
            let channel = String::from_utf8_lossy(&pair[0]).into_owned();
            let message = Bytes::copy_from_slice(&pair[1]);
            let kind = if self.settles { 1000 } else { self.random.next() % 1000 };
            let soon = self.now + self.random.between(0, 20);
            let late = self.now + self.random.between(0, self.times.dead);
            self.stats.bad_hints += u64::from(kind < 150);
            let times = match kind {
                0..50 => vec![],
                50..100 => vec![late],
                100..150 => vec![soon, late],
                _ => vec![soon],
            };
            for at in times {
                self.hints.push(Hint { at, channel: channel.clone(), message: message.clone() });
            }
        }
    }

    /// Wake-ups that are due are heard by all that listen and can.
    pub(super) fn wake(&mut self) {
        let due: Vec<Hint> = self.hints.extract_if(.., |hint| hint.at <= self.now).collect();
        if due.is_empty() {
            return;
        }
        let deaf: Vec<u64> = self
            .seats
            .iter()
            .filter(|seat| self.now < seat.cut_until)
            .filter_map(|seat| Some(seat.process.as_ref()?.life))
            .collect();
        let bus = self.bus.lock();
        for hint in due {
            for listener in bus.listeners.iter().filter(|listener| !deaf.contains(&listener.life)) {
                (listener.ear)(&hint.channel, hint.message.clone());
            }
        }
    }
}

/// Redis' sets have no order: here they have one, so that each run is the same.
fn list(value: Value) -> Vec<Value> {
    let mut words = plain_list(value);
    words.sort();
    words.into_iter().map(Value::BulkString).collect()
}

/// The same for hashes.
fn sorted_pairs(value: Value) -> Value {
    let mut pairs: Vec<_> = plain_list(value).chunks_exact(2).map(<[_]>::to_vec).collect();
    pairs.sort();
    Value::Array(pairs.into_iter().flatten().map(Value::BulkString).collect())
}

fn plain(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

fn plain_list(value: Value) -> Vec<Vec<u8>> {
    match value {
        Value::Array(values) => values
            .into_iter()
            .map(|value| match value {
                Value::BulkString(bytes) => bytes,
                other => panic!("{other:?} in a list of words"),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// All in one page.
fn page(values: Vec<Value>) -> Value {
    Value::Array(vec![Value::BulkString(b"0".to_vec()), Value::Array(values)])
}

fn sort_nested(value: &mut Value) {
    let Value::Array(parts) = value else { return };
    for part in parts {
        if let Value::Array(_) = part {
            let words = std::mem::replace(part, Value::Nil);
            *part = Value::Array(list(words));
        }
    }
}
