//! A blocking connection to the Redis that executes all commands, without any async runtime.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ::redis::{Value, parse_redis_value};

pub(crate) struct RedisConnection {
    stream: BufReader<UnixStream>,
    pending: Vec<u8>,
    line: Vec<u8>,
}

impl RedisConnection {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        Self { stream: BufReader::new(stream), pending: Vec::new(), line: Vec::new() }
    }

    pub(crate) fn add(&mut self, words: &[impl AsRef<[u8]>]) {
        let pending = &mut self.pending;
        write!(pending, "*{}\r\n", words.len()).unwrap();
        for word in words {
            let word = word.as_ref();
            write!(pending, "${}\r\n", word.len()).unwrap();
            pending.extend_from_slice(word);
            pending.extend_from_slice(b"\r\n");
        }
    }

    /// Skips the first `skipped` replies and returns the other `COUNT`.
    pub(crate) fn send<const COUNT: usize>(&mut self, skipped: usize) -> [Value; COUNT] {
        self.flush();
        for _ in 0..skipped {
            self.read();
        }
        std::array::from_fn(|_| self.read())
    }

    /// The caller must read all replies.
    pub(crate) fn flush(&mut self) {
        self.stream.get_mut().write_all(&self.pending).unwrap();
        self.pending.clear();
    }

    /// The command must not fail.
    pub(crate) fn execute(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        self.add(words);
        let [reply] = self.send(0);
        must_be_reply(words, &reply);
        reply
    }

    pub(crate) fn load_script(&mut self, source: &str) -> String {
        match self.execute(&["SCRIPT", "LOAD", source]) {
            Value::BulkString(hash) => String::from_utf8(hash).unwrap(),
            other => panic!("SCRIPT LOAD: {other:?}"),
        }
    }

    pub(crate) fn read(&mut self) -> Value {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line).unwrap();
        let [kind, number @ .., b'\r', b'\n'] = &self.line[..] else { panic!("Redis closed the connection") };
        let number = || std::str::from_utf8(number).unwrap().parse::<i64>().unwrap();
        match kind {
            b'*' => match number() {
                ..0 => Value::Nil,
                count => Value::Array((0..count).map(|_| self.read()).collect()),
            },
            b'$' => match number() {
                ..0 => Value::Nil,
                length => {
                    let mut bytes = vec![0; length as usize + 2];
                    self.stream.read_exact(&mut bytes).unwrap();
                    bytes.truncate(bytes.len() - 2);
                    Value::BulkString(bytes)
                }
            },
            b':' => Value::Int(number()),
            _ => parse_redis_value(&self.line).unwrap(),
        }
    }
}

pub(crate) fn must_be_reply(words: &[impl AsRef<[u8]>], reply: &Value) {
    assert!(
        !matches!(reply, Value::ServerError(_)),
        "{:?}: {reply:?}",
        words.iter().map(|word| String::from_utf8_lossy(word.as_ref()).into_owned()).collect::<Vec<_>>()
    );
}
