//! Executes requests on Redis: scripts with simulated time, and unordered replies in a fixed order.

use ::redis::{Value, parse_redis_value};
use store::{RedisCommand, Script};

use crate::machine::bus::RedisRequest;
use crate::machine::process_id::ProcessId;
use crate::machine::redis::must_be_reply;
use crate::machine::redis_values::{elements, single_page, sort_nested, sorted, sorted_pairs};
use crate::machine::scripts::{HINTS, KEY};
use crate::workload::addresses::POOL_SIZE;
use crate::world::state::World;

const OTHER_DATABASE: &str = "1";

impl World {
    pub(crate) fn execute(&mut self, request: &RedisRequest) -> Vec<Value> {
        self.stats.requests += 1;
        if request.is_elsewhere {
            return self.execute_elsewhere(request);
        }
        self.expire_keys_of(&request.commands);
        let mut replies = Vec::with_capacity(request.commands.len());
        for commands in request.commands.chunk_by(|one, next| is_read(one) && is_read(next)) {
            if is_read(&commands[0]) {
                self.execute_reads(request.process, commands, &mut replies);
            } else {
                replies.push(self.execute_command(request.process, &commands[0]));
            }
        }
        replies
    }

    /// Redis itself knows no simulated time. Scripts note times in what they write.
    fn expire_keys_of(&mut self, commands: &[RedisCommand]) {
        for words in commands.iter().filter(|words| is_read(words) && words.len() > 1) {
            if self.expirations.get(&words[1]).is_some_and(|at| *at <= self.clock.now) {
                self.redis.execute(&[b"DEL", &words[1][..]]);
            }
        }
        for words in commands.iter().filter(|words| words[0] == b"EXPIRE") {
            let seconds: u64 = String::from_utf8_lossy(&words[2]).parse().unwrap();
            self.expirations.insert(words[1].clone(), self.clock.now + seconds * 1000);
        }
    }

    fn execute_command(&mut self, process: ProcessId, words: &RedisCommand) -> Value {
        if let (ProcessId::Proxy(_), Some(reply)) = (process, self.replication_reply(&words[0])) {
            return reply;
        }
        let is_write = matches!(&words[0][..], b"EVALSHA" | b"BRPOPLPUSH" | b"LMOVE" | b"LREM");
        if is_write && self.faults.write_outage.is_refused(process, self.clock.now) {
            return self.refuse_write(process, words);
        }
        let reply = match &words[0][..] {
            b"PING" => return Value::SimpleString("PONG".to_owned()),
            b"ROLE" => return Value::Array(vec![Value::BulkString(b"master".to_vec())]),
            b"TIME" => return self.time_reply(),
            b"EVALSHA" => return self.execute_script(process, words),
            b"BRPOPLPUSH" => {
                self.change(&[b"LMOVE", &words[1][..], &words[2], b"RIGHT", b"LEFT"], &words[1..3])
            }
            b"LMOVE" => self.change(words, &words[1..3]),
            b"LREM" => self.change(words, &words[1..2]),
            _ => self.read(words),
        };
        self.log_reply(process, words, &reply);
        reply
    }

    /// As a master without its replicas does: a script that only reads succeeds.
    fn refuse_write(&mut self, process: ProcessId, words: &RedisCommand) -> Value {
        if words[0] != b"EVALSHA" {
            return parse_redis_value(b"-NOREPLICAS Not enough good replicas to write.\r\n").unwrap();
        }
        let (script, hash) = self.script_of(words);
        let now = self.clock.redis_now().to_string();
        let mut changed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        changed[1] = hash.as_bytes();
        self.redis.add(&["HSET", KEY, "now", &now]);
        self.redis.add(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        self.redis.add(&changed);
        self.redis.add(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        let [mut reply, _] = self.redis.send(2);
        if script.name == "heartbeat" {
            sort_nested(&mut reply);
        }
        if let (ProcessId::Scheduler(index), "scheduler_beat") = (process, script.name) {
            self.checks.refused_beats[index] = self.clock.now;
        }
        let shown = Self::in_short(&reply);
        self.log(process, format_args!("{} without writes -> {shown}", script.name));
        reply
    }

    fn script_of(&self, words: &RedisCommand) -> (&'static Script, String) {
        let Some(found) = self.scripts.get(&words[1]).cloned() else {
            panic!("a call of an unknown script: {}", String::from_utf8_lossy(&words[1]));
        };
        found
    }

    fn execute_reads(&mut self, process: ProcessId, commands: &[RedisCommand], replies: &mut Vec<Value>) {
        for words in commands {
            self.add_as_ordered(words);
        }
        self.redis.flush();
        for words in commands {
            let reply = self.redis.read();
            let mut reply = self.in_order(words, reply);
            if self.switches.global_anywhere && is_read_of_members(words) {
                exchange_nodes(&mut reply);
            }
            self.log_reply(process, words, &reply);
            replies.push(reply);
        }
    }

    fn log_reply(&mut self, process: ProcessId, words: &RedisCommand, reply: &Value) {
        let is_empty_pop = matches!(&words[0][..], b"BRPOPLPUSH" | b"LMOVE") && *reply == Value::Nil;
        if self.trace.is_enabled() && !is_empty_pop {
            let [name, key] = [0, 1].map(|at| words.get(at).map(|word| String::from_utf8_lossy(word)));
            let (name, key) = (name.unwrap_or_default(), key.unwrap_or_default());
            let reply = Self::in_short(reply);
            self.log(process, format_args!("{name} {key} -> {reply}"));
        }
    }

    fn read(&mut self, words: &RedisCommand) -> Value {
        self.add_as_ordered(words);
        let [reply] = self.redis.send(0);
        self.in_order(words, reply)
    }

    fn add_as_ordered(&mut self, words: &RedisCommand) {
        match &words[0][..] {
            b"SRANDMEMBER" | b"SSCAN" => self.redis.add(&[b"SMEMBERS", &words[1][..]]),
            b"HSCAN" => self.redis.add(&[b"HGETALL", &words[1][..]]),
            b"SCAN" => self.redis.add(&[b"KEYS", &words[3][..]]),
            _ => self.redis.add(words),
        }
    }

    fn in_order(&mut self, words: &RedisCommand, reply: Value) -> Value {
        must_be_reply(words, &reply);
        match &words[0][..] {
            b"SRANDMEMBER" => {
                let count = String::from_utf8_lossy(&words[2]).parse().unwrap();
                let mut members = sorted(reply);
                self.random.shuffle(&mut members);
                members.truncate(count);
                Value::Array(members)
            }
            b"SMEMBERS" => Value::Array(sorted(reply)),
            b"HGETALL" => sorted_pairs(reply),
            b"HSCAN" => single_page(elements(sorted_pairs(reply))),
            b"SSCAN" | b"SCAN" => single_page(sorted(reply)),
            _ => reply,
        }
    }

    pub(crate) fn set_up_other_database(&mut self, is_of_others: bool) {
        self.redis.execute(&["SELECT", OTHER_DATABASE]);
        self.redis.execute(&["FLUSHDB"]);
        if is_of_others {
            let id = "b1c2d3e4-0000-4000-8000-00000000beef";
            self.redis.execute(&["HSET", "meta", "cluster", id]);
        }
        self.redis.execute(&["SELECT", "0"]);
    }

    fn execute_elsewhere(&mut self, request: &RedisRequest) -> Vec<Value> {
        self.redis.execute(&["SELECT", OTHER_DATABASE]);
        let replies = request.commands.iter().map(|words| {
            let name = String::from_utf8_lossy(&words[0]).into_owned();
            let reply = match name.as_str() {
                "PING" | "ROLE" | "TIME" => self.execute_command(request.process, words),
                "BRPOPLPUSH" => Value::Nil,
                "EVALSHA" => self.execute_script_elsewhere(words),
                _ => self.read(words),
            };
            let shown = Self::in_short(&reply);
            self.log(request.process, format_args!("elsewhere: {name} -> {shown}"));
            reply
        });
        let replies = replies.collect();
        self.redis.execute(&["DEL", HINTS]);
        self.redis.execute(&["SELECT", "0"]);
        replies
    }

    fn execute_script_elsewhere(&mut self, words: &RedisCommand) -> Value {
        let (script, hash) = self.script_of(words);
        let now = self.clock.redis_now().to_string();
        let mut changed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        changed[1] = hash.as_bytes();
        self.redis.add(&["HSET", KEY, "now", &now]);
        self.redis.add(&changed);
        let [mut reply] = self.redis.send(1);
        if script.name == "heartbeat" {
            sort_nested(&mut reply);
        }
        reply
    }

    pub(crate) fn replication_reply(&self, command: &[u8]) -> Option<Value> {
        let has_all = self.faults.replica.is_none();
        match command {
            b"INFO" => {
                let info = "role:master\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0\r\n";
                Some(Value::BulkString(info.into()))
            }
            b"WAIT" => Some(Value::Int(has_all.into())),
            _ => None,
        }
    }

    fn time_reply(&self) -> Value {
        let now = self.clock.redis_now();
        let (seconds, micros) = (now / 1000, now % 1000 * 1000);
        let word = |number: u64| Value::BulkString(number.to_string().into_bytes());
        Value::Array(vec![word(seconds), word(micros)])
    }

    fn execute_script(&mut self, process: ProcessId, words: &RedisCommand) -> Value {
        let (script, hash) = self.script_of(words);
        if self.switches.no_sweep && script.name == "in_flight" {
            return Value::Array(Vec::new());
        }
        let key_count: usize = String::from_utf8_lossy(&words[2]).parse().unwrap();
        let (keys, arguments) = words[3..].split_at(key_count);
        self.before(process, script, arguments);
        let now = self.clock.redis_now().to_string();
        let mut changed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        changed[1] = hash.as_bytes();
        if script.name == "address" {
            *changed.last_mut().unwrap() = POOL_SIZE.as_bytes();
        }
        self.redis.add(&["HSET", KEY, "now", &now]);
        self.redis.add(&changed);
        self.redis.add(&["LPOP", HINTS, "1000"]);
        // A script may change the keys that it declares, and no others.
        self.add_read(keys);
        let [mut reply, published, rows] = self.redis.send(1);
        self.checks.unapplied_rows.push(rows);
        if script.name == "heartbeat" {
            sort_nested(&mut reply);
        }
        self.after(process, script, &reply);
        self.schedule_hints(published);
        if self.trace.is_enabled() {
            let (arguments, outcome) = (Self::arguments(arguments), Self::in_short(&reply));
            self.log(process, format_args!("{} {arguments} -> {outcome}", script.name));
        }
        reply
    }
}

/// By a scheduler that is about to place pods.
fn is_read_of_members(words: &RedisCommand) -> bool {
    words[0] == b"HMGET" && words.last().is_some_and(|field| field == b"members")
}

fn exchange_nodes(reply: &mut Value) {
    let Value::Array(fields) = reply else { return };
    if let Some(Value::BulkString(members)) = fields.last_mut() {
        let text = String::from_utf8_lossy(members).into_owned();
        let exchanged = [("w1", "w0"), ("w2", "w1"), ("w3", "w2"), ("w0", "w3")];
        *members = exchanged.iter().fold(text, |text, (from, to)| text.replace(from, to)).into_bytes();
    }
}

/// True if Redis executes it almost as it came, and it changes nothing.
fn is_read(words: &RedisCommand) -> bool {
    let is_another = matches!(
        &words[0][..],
        b"PING" | b"ROLE" | b"TIME" | b"INFO" | b"WAIT" | b"EVALSHA" | b"BRPOPLPUSH" | b"LMOVE" | b"LREM"
    );
    !is_another
}
